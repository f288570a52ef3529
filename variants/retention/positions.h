// The parameter of every retention that drops tokens: where RoPE takes its positions from.
#pragma once

#include "variants/registry.h"

namespace kv {

inline Parameter positions_parameter() {
  return Parameter::choice(
      "positions", {"absolute", "cache"},
      "keys are turned by their token's position, or when read by their place in the cache");
}

}  // namespace kv
