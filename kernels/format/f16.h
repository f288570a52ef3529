// f16: IEEE binary16, rounded to nearest even.
//
//   data  D binary16        meta  none        range  65504; what is beyond becomes infinity, as IEEE has it
#pragma once

#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"
#include "kernels/math.h"

namespace kv {

struct F16Format : PlainFloats<F16Format, Format::kF16, uint16_t> {
  KV_HD static constexpr int element(int /*head_dim*/, int word, int slot) { return 2 * word + slot; }
  KV_HD static uint16_t store_element(float x) { return f32_to_f16(x); }
  KV_HD static float load_element(const std::byte* data, const std::byte*, int i) {
    return f16_to_f32(load<uint16_t>(data, i));
  }
  static std::string name(const Encoding&) { return "f16"; }
};

}  // namespace kv
