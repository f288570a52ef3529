// bf16: the upper half of a binary32, rounded to nearest even.
//
//   data  D bfloat16        meta  none        range  3.39e38; what is beyond becomes infinity
#pragma once

#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"
#include "kernels/math.h"

namespace kv {

struct Bf16Format : PlainFloats<Bf16Format, Format::kBf16, uint16_t> {
  KV_HD static constexpr int element(int /*head_dim*/, int word, int slot) { return 2 * word + slot; }
  KV_HD static uint16_t store_element(float x) { return f32_to_bf16(x); }
  KV_HD static float load_element(const std::byte* data, const std::byte*, int i) {
    return bf16_to_f32(load<uint16_t>(data, i));
  }
  static std::string name(const Encoding&) { return "bf16"; }
};

}  // namespace kv
