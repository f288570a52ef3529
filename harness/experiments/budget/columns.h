// The columns that budget alone writes.
#pragma once

#include "harness/results/column.h"

namespace kv::experiments {

// `which` end of the error's interval.
constexpr results::NumberColumn end_of_error(std::string_view name, std::string_view which) {
  results::NumberColumn column{name, "1",
                               "95 % interval (Student's, over the sequences of a batch of at least 5; empty "
                               "if all sequences are the same)"};
  column.end = which;
  column.end_of = "err_rel_l2";
  return column;
}
inline constexpr auto kErrCiLow = end_of_error("err_ci_low", "lower"),
                      kErrCiHigh = end_of_error("err_ci_high", "upper");
inline constexpr auto kBudgetColumns = results::column_list(kErrCiLow, kErrCiHigh);

}  // namespace kv::experiments
