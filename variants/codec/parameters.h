// What the quantised codecs' parameters have in common.
#pragma once

#include "variants/core/entry.h"

namespace kv {

// Two arms of every quantised codec: whether "quantised is slower" comes from the codes or from the way they
// are read.
inline Parameter read_parameter() {
  return Parameter::choice("read", {"fused", "copy"},
                           "decode inside attention, or all rows to an f32 copy first");
}
inline bool reads_copy(const Stage& stage) { return stage.text("read") == "copy"; }

}  // namespace kv
