// The columns that budget alone writes.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::experiments {

inline constexpr results::NumberColumn kErrCiLow{
    "err_ci_low", "1",
    "95 % interval of err_rel_l2 (Student's, over the sequences of a batch of 5 and more; "
    "empty where all sequences are the same)"};
inline constexpr results::NumberColumn kErrCiHigh{"err_ci_high", "1", "its upper end"};
inline constexpr auto kBudgetColumns = results::column_list(kErrCiLow, kErrCiHigh);

}  // namespace kv::experiments
