// When attention on vectors multiplies codes, and not the floats that they stand for. Private to kernels/cpu.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/format/descriptor.h"

namespace kv::cpu {

// Finite queries with K's codes.
inline bool multiplies_k_codes(const Encoding& k, int head_dim) {
  const FormatDescriptor& format = descriptor_of(k.format);
  return format.fills_words(k, head_dim) || format.int8_levels;
}

// Weights with V's codes. Codes under a scale a channel are decoded: weights differ from row to row, and a channel's scale
// could only be applied to the sums of each unit.
inline bool multiplies_v_codes(const Encoding& v, int head_dim) {
  const FormatDescriptor& format = descriptor_of(v.format);
  return multiplies_k_codes(v, head_dim) && format.scaling != Scaling::kChannel;
}

// Queries and weights of 8 bits with codes in blocks, in steps of so many tokens.
inline bool multiplies_int8(Arithmetic arithmetic, int64_t tokens) {
  return arithmetic == Arithmetic::kInt8 && tokens < kPrefillTokens;
}

}  // namespace kv::cpu
