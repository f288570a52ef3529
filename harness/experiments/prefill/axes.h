// The keys of prefill. Each chunk is an arm of a sweep point, not a point of its own.
#pragma once

#include "harness/config/key.h"

namespace kv::experiments {

inline const config::Key<std::vector<int64_t>> kChunkKey{
    "chunk", config::SharedTable::kSweep, {512}, config::token_list(), "tokens of a chunk"};
inline const config::Key<bool> kUnmaskedKey{"unmasked", config::SharedTable::kMeasure, false, config::flag(),
                                            "true: also measures without a causal mask"};

}  // namespace kv::experiments
