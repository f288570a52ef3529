// The table of error metrics. Each measures the difference between a cache's values and FP64's over all tokens. A row
// is a column of cells.csv with its unit and meaning, and so of columns.json, `kvlab list` and charts. (verify.h has
// the split by cause: err_codec_, err_retention_ and err_kernel_rel_l2.)
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "harness/results/column.h"

namespace kv::verify {

struct Metric {
  results::NumberColumn column;
  std::string_view better;  // "lower" or "higher"
  // The values compared: attention outputs of all checked heads together, or each head's attention distribution,
  // averaged over heads. For distributions, `got` is FP64's weights over all tokens, and `want` FP64's weights over
  // the stored rows that were read, 0 for all other tokens.
  enum class Of { kOutputs, kAttention } of;
  // Summary over several positions in a budget run.
  enum class Over { kMean, kLargest } over;
  double (*compute)(std::span<const double> got, std::span<const double> want);
};

std::span<const Metric* const> metrics();

// Index of a metric in the table. Throws std::logic_error for an unknown name.
size_t metric_index(std::string_view name);

// Throws std::logic_error unless sizes agree: metrics compare value with value.
void require_same_size(std::span<const double> got, std::span<const double> want);

}  // namespace kv::verify
