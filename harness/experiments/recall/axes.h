// The axes and keys of recall.
#pragma once

#include "harness/config/key.h"
#include "harness/experiments/recall/columns.h"

namespace kv::experiments {

inline const config::Axis<int64_t> kDistanceAxis{kDistance,
                                                 "distance",
                                                 config::SharedTable::kSweep,
                                                 {},
                                                 config::token_list(),
                                                 "tokens from a passage to its copy",
                                                 "distance = [100, 200, 400]"};
inline const config::Axis<int64_t> kPassageAxis{
    kPassageTokens, "passage", config::SharedTable::kSweep, {64}, config::token_list(), "tokens of one copy"};
inline const config::Key<std::string> kPassagesKey{"passages", config::SharedTable::kMeasure, "random",
                                                   config::choice({"random", "text"}),
                                                   "passages of random tokens, or of the text"};

}  // namespace kv::experiments
