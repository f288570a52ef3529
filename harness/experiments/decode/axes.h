// The keys of decode.
#pragma once

#include "harness/config/key.h"

namespace kv::experiments {

inline const config::Key<int64_t> kColdStepsKey{
    "cold_steps", config::SharedTable::kMeasure, 16, config::count(0, 100000),
    "attends over rotating caches a repetition; 0 leaves the cold columns out"};
inline const config::Key<int64_t> kDraftKey{
    "draft", config::SharedTable::kMeasure, 0, config::tokens(0, 1024),
    "tokens that a step verifies besides its own; 0 leaves the draft columns out"};
inline const config::Key<double> kAcceptKey{"accept", config::SharedTable::kMeasure, 0.7,
                                            config::number(0.0, 1.0),
                                            "probability that a draft is accepted if those before it were"};
inline const config::Key<int64_t> kPeerTimeoutKey{"peer_timeout", config::SharedTable::kMeasure, 300,
                                                  config::count(1, 100000),
                                                  "seconds in which a peer has to answer"};
// A peer's name selects all of its formats.
extern const config::Key<std::vector<std::string>> kPeersKey;

}  // namespace kv::experiments
