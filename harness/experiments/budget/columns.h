// The columns that budget alone writes.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::experiments {

inline constexpr results::NumberColumn kErrCiLow{
    "err_ci_low", "1",
    "lower end of the 95 % interval of err_rel_l2 (Student's, over the sequences of a batch of at least 5; "
    "empty if all sequences are the same)"};
inline constexpr results::NumberColumn kErrCiHigh{"err_ci_high", "1",
                                                  "upper end of the 95 % interval of err_rel_l2"};
inline constexpr auto kBudgetColumns = results::column_list(kErrCiLow, kErrCiHigh);

}  // namespace kv::experiments
