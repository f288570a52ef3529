// f32: IEEE binary32, stored as it is.
//
//   data  D binary32        meta  none        range  all
#pragma once

#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"

namespace kv {

struct F32Format : PlainFloats<F32Format, Format::kF32, float> {
  KV_HD static float store_element(float x) { return x; }
  KV_HD static float load_element(const std::byte* data, const std::byte*, int i) {
    return load<float>(data, i);
  }
  static std::string name(const Encoding&) { return "f32"; }
};

}  // namespace kv
