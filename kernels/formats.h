// The quantised formats behind encoding.h, a file each: fp8_format.cc, ggml_format.cc, uniform_format.cc.
// Private to kernels/; bytes and rounding are described in encoding.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/encoding.h"
#include "kernels/quantise.h"
#include "kernels/span.h"

namespace kv {

// encode_units, one way each. The scalar one is the definition; the other (cpu/encode-inl.h) leaves to it the
// units that it does not take.
void encode_units_simd(const Encoding& encoding, int head_dim, std::span<const UnitJob> jobs);
void encode_unit_scalar(const Encoding& encoding, int head_dim, const UnitJob& job);

void encode_fp8(Format format, int n, const float* row, std::byte* data, std::byte* meta);
void decode_fp8(Format format, int n, const std::byte* data, const std::byte* meta, float* row);

void encode_q8_0(int n, const float* row, std::byte* data, std::byte* meta);
void decode_q8_0(int n, const std::byte* data, const std::byte* meta, float* row);
void encode_q4_0(int n, const float* row, std::byte* data, std::byte* meta);
void decode_q4_0(int n, const std::byte* data, const std::byte* meta, float* row);

void encode_token(const Encoding& encoding, int n, const float* row, std::byte* data, std::byte* meta);
void decode_token(const Encoding& encoding, int n, const std::byte* data, const std::byte* meta, float* row);

int64_t channel_meta_bytes(const Encoding& encoding, int n);
void encode_channel(const Encoding& encoding, int n, const float* rows, std::byte* data, std::byte* meta);
// Rows [first, first + count) of one unit -> out [count, n].
void decode_channel(const Encoding& encoding, int n, const std::byte* data, const std::byte* meta, int first,
                    int count, float* out);

template <class T>
KV_HD T load(const std::byte* p, int64_t i) {
  T value;
  std::memcpy(&value, p + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
KV_HD void store(std::byte* p, int64_t i, T value) {
  std::memcpy(p + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// Whether rows are integer codes of a layout that attention multiplies as they lie
// (cpu/attention_codes-inl.h).
inline bool is_code(const Encoding& e, int head_dim) {
  const bool uniform = e.format == Format::kToken || e.format == Format::kChannel;
  if (!uniform) return e.format == Format::kQ8_0 || e.format == Format::kQ4_0;
  return (e.bits == 8 || e.bits == 4 || e.bits == 2) && head_dim * e.bits % 128 == 0;
}

// The largest magnitude of n elements, as bits. kInfinityBits or more if any is infinite or NaN.
inline uint32_t largest_magnitude_bits(int n, const float* x) {
  uint32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const uint32_t magnitude = magnitude_bits(x[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

}  // namespace kv
