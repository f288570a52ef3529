// The replay experiment: requests from a trace, or drawn ones, pass through each variant's own allocators on a
// simulated clock.
#pragma once

#include <cstdint>

#include "harness/config/config.h"

namespace kv::experiments {

// The longest request, in tokens, of a replay of this config: the model's trained context, or 128K.
int64_t longest_request(const config::Config& config);

}  // namespace kv::experiments
