// f32: IEEE binary32, stored as it is.
//
//   data  D binary32        meta  none        range  all
#pragma once

#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"

namespace kv {

struct F32Format : PlainFloats<float> {
  static constexpr Format kFormat = Format::kF32;
  KV_HD static float store_element(float x) { return x; }
  KV_HD static float load_element(const std::byte* data, const std::byte*, int i) {
    return load<float>(data, i);
  }
  static std::string name(const Encoding&) { return "f32"; }
  static std::vector<Encoding> samples() { return {{.format = kFormat, .bits = kBits}}; }
  static void encode(const Encoding&, int head_dim, const float* rows, std::byte* data, std::byte*) {
    std::memcpy(data, rows, sizeof(float) * static_cast<size_t>(head_dim));
  }
  static void decode(const Encoding&, int head_dim, const std::byte* data, const std::byte*, int, int,
                     float* out) {
    std::memcpy(out, data, sizeof(float) * static_cast<size_t>(head_dim));
  }
};

}  // namespace kv
