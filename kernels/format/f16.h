// f16: IEEE binary16, rounded to nearest even.
//
//   data  D binary16        meta  none        range  65504; what is beyond becomes infinity, as IEEE has it
#pragma once

#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"
#include "kernels/math.h"

namespace kv {

struct F16Format : PlainFloats<uint16_t> {
  static constexpr Format kFormat = Format::kF16;
  KV_HD static constexpr int element(int /*head_dim*/, int word, int slot) { return 2 * word + slot; }
  KV_HD static uint16_t store_element(float x) { return f32_to_f16(x); }
  KV_HD static float load_element(const std::byte* data, const std::byte*, int i) {
    return f16_to_f32(load<uint16_t>(data, i));
  }
  static std::string name(const Encoding&) { return "f16"; }
  static std::vector<Encoding> samples() { return {{.format = kFormat, .bits = kBits}}; }
  static void encode(const Encoding&, int head_dim, const float* rows, std::byte* data, std::byte*) {
    for (int i = 0; i < head_dim; ++i) store(data, i, store_element(rows[i]));
  }
  static void decode(const Encoding&, int head_dim, const std::byte* data, const std::byte*, int, int,
                     float* out) {
    for (int i = 0; i < head_dim; ++i) out[i] = load_element(data, nullptr, i);
  }
};

}  // namespace kv
