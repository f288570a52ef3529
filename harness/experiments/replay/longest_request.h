// The replay experiment: requests of a trace, or drawn ones, through each variant's own allocators on a simulated clock.
#pragma once

#include <cstdint>

#include "harness/config/config.h"

namespace kv::experiments {

// The longest request that a replay of this config takes, tokens: the model's trained context, or 128K.
int64_t longest_request(const config::Config& config);

}  // namespace kv::experiments
