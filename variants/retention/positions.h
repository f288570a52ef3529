// The parameter of retentions that says where RoPE takes its positions from.
#pragma once

#include "variants/core/entry.h"

namespace kv {

inline Parameter positions_parameter() {
  return Parameter::choice(
      "positions", {"absolute", "cache"},
      "keys are rotated by their token's position, or when read by their position in the cache");
}
inline bool rotates_by_cache_position(const Stage& stage) { return stage.text("positions") == "cache"; }

}  // namespace kv
