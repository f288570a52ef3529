// The keys of stream.
#pragma once

#include "harness/experiments/reading_keys.h"

namespace kv::experiments {

inline const config::Key<std::vector<int64_t>> kRecomputeKey{
    "recompute",
    config::SharedTable::kMeasure,
    {},
    config::token_list(),
    "lengths of windows that are recomputed for every `stride` tokens"};
inline const config::Key<int64_t> kStrideKey{"stride", config::SharedTable::kMeasure, 32,
                                             config::tokens(1, config::kMaxTokens),
                                             "tokens between two recomputations of a window"};

}  // namespace kv::experiments
