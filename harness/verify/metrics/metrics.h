// The table of error metrics, each the difference between a cache's values and FP64's over all tokens. A row
// is a column of cells.csv with its unit and meaning, and so of columns.json, `kvlab list` and charts. (The
// split by cause, err_codec_, err_retention_ and err_kernel_rel_l2, is verify.h's.)
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "harness/results/column.h"

namespace kv::verify {

struct Metric {
  results::NumberColumn column;
  std::string_view better;  // "lower" or "higher"
  // What it is computed of: attention outputs of all checked heads together, or each head's attention
  // distribution, of which the mean over heads counts. `got` has then FP64's weights over all tokens, and `want` FP64's
  // over the rows that were read, as they are stored, with 0 for the tokens that were not.
  enum class Of { kOutputs, kAttention } of;
  // What a budget run reports of several positions.
  enum class Over { kMean, kLargest } over;
  double (*compute)(std::span<const double> got, std::span<const double> want);
};

std::span<const Metric* const> metrics();

// Where a metric stands in the table. Throws std::logic_error where there is none.
size_t metric_index(std::string_view name);

// Throws std::logic_error: for metrics, which compare value with value.
void require_same_size(std::span<const double> got, std::span<const double> want);

}  // namespace kv::verify
