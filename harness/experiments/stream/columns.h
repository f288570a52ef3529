// The columns that stream alone writes.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::experiments {

inline constexpr results::IntegerColumn kTrainedTokens{"trained_tokens", "tokens",
                                                       "stream: context that the model was trained for"};
inline constexpr auto kStreamColumns = results::column_list(kTrainedTokens);

}  // namespace kv::experiments
