#include "kernels/format/turbo.h"

#include <algorithm>
#include <cmath>

#include "kernels/format/quantise.h"
#include "kernels/hadamard.h"

namespace kv {
namespace {

constexpr float kLargestScale = 65504.0f;

// The length of a row of n divided by the square root of `by`, as stored. NaN for a row that is not finite.
uint16_t stored_scale(int n, const float* row, double by) {
  double squares = 0.0;
  for (int i = 0; i < n; ++i) squares += double{row[i]} * double{row[i]};
  const auto scale = static_cast<float>(std::sqrt(squares / by));
  if (!std::isfinite(squares)) return f32_to_f16(std::bit_cast<float>(kNanBits));
  return f32_to_f16(std::min(scale, kLargestScale));
}

// The nearest level's code.
unsigned turbo_code(int bits, float x) {
  const float* level = kTurboLevels[bits - 1];
  const int levels = 1 << (bits - 1);
  unsigned code = 0;
  for (int i = 0; i + 1 < levels; ++i) code += std::abs(x) > 0.5f * (level[i] + level[i + 1]);
  return code | (std::bit_cast<uint32_t>(x) >> 31) << (bits - 1);
}

float turbo_level(int bits, unsigned code) {
  const unsigned sign = 1u << (bits - 1);
  const float magnitude = kTurboLevels[bits - 1][code & (sign - 1)];
  return code & sign ? -magnitude : magnitude;
}

bool sign_at(const std::byte* signs, int i) { return (load<uint8_t>(signs, i / 8) >> (i % 8) & 1) != 0; }

template <class IsNegative>
void store_signs(int n, std::byte* to, IsNegative is_negative) {
  std::fill_n(to, n / 8, std::byte{0});
  for (int i = 0; i < n; ++i) to[i / 8] |= static_cast<std::byte>(is_negative(i) << (i % 8));
}

void store_codes(int bits, int n, const uint16_t* codes, std::byte* data, std::byte* signs) {
  if (!turbo_has_signs(bits)) return pack_codes(bits, n, codes, data);
  const unsigned sign = 1u << (bits - 1);
  uint16_t magnitudes[kMaxHeadDim] = {};
  for (int i = 0; i < n; ++i) magnitudes[i] = static_cast<uint16_t>(codes[i] & (sign - 1));
  if (bits > 1) pack_codes(turbo_packed_bits(bits), n, magnitudes, data);
  store_signs(n, signs, [&](int i) { return (codes[i] & sign) != 0; });
}

void load_codes(int bits, int n, const std::byte* data, const std::byte* signs, uint16_t* codes) {
  std::fill_n(codes, n, uint16_t{0});
  if (bits > 1) unpack_codes(turbo_packed_bits(bits), n, data, codes);
  if (!turbo_has_signs(bits)) return;
  for (int i = 0; i < n; ++i) codes[i] |= static_cast<uint16_t>(sign_at(signs, i) << (bits - 1));
}

// The Hadamard transform in its plainest form: the sums of kernels/cpu/hadamard.cc, in its order.
void transform(int n, float* x) {
  const int block = hadamard_block(n);
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
  for (int i = 0; i < n; ++i) x[i] *= scale;
  for (int half = 1; half < block; half *= 2) {
    for (int i = 0; i < n; ++i) {
      if (i & half) continue;
      const float low = x[i], high = x[i + half];
      x[i] = low + high;
      x[i + half] = low - high;
    }
  }
}

void flip(int n, float* x) {
  for (int i = 0; i < n; ++i) x[i] = random_sign(kSketchSigns, i) ? -x[i] : x[i];
}

}  // namespace

std::string TurboFormat::name(const Encoding& e) {
  return "turbo" + std::to_string(e.bits) + (e.second ? "qjl" : "") + (e.norm ? "norm" : "");
}

std::string TurboFormat::unsupported_reason(const Encoding&, int head_dim) {
  if (head_dim % 32 == 0) return "";
  return "turbo makes rows near-normal by mixing 32 channels or more, so head_dim must be a multiple of 32, "
         "not " +
         std::to_string(head_dim);
}

std::vector<Encoding> TurboFormat::samples() {
  std::vector<Encoding> all;
  for (const bool second : {false, true}) {
    for (const uint8_t bits : {1, 2, 3, 4})
      all.push_back({.format = kFormat, .bits = bits, .second = second});
  }
  all.push_back({.format = kFormat, .bits = 2, .norm = true});
  return all;
}

void TurboFormat::encode(const Encoding& e, int n, const float* row, std::byte* data, std::byte* meta) {
  uint16_t stored = stored_scale(n, row, n);
  const float inverse_scale = inverse(f16_to_f32(stored));
  uint16_t codes[kMaxHeadDim];
  for (int i = 0; i < n; ++i) {
    const float x = row[i] * inverse_scale;
    codes[i] = static_cast<uint16_t>(turbo_code(e.bits, std::isfinite(x) ? x : 0.0f));
  }
  store_codes(e.bits, n, codes, data, data + signs_at(e, n));
  if (e.norm) {
    double squares = 0.0;
    for (int i = 0; i < n; ++i) squares += std::pow(double{turbo_level(e.bits, codes[i])}, 2);
    stored = stored_scale(n, row, squares);
  }
  const float scale = f16_to_f32(stored);
  store(meta, 0, stored);
  if (!e.second) return;
  float error[kMaxHeadDim];
  for (int i = 0; i < n; ++i) error[i] = row[i] - turbo_level(e.bits, codes[i]) * scale;
  store(meta, 1, stored_scale(n, error, n));
  flip(n, error);
  transform(n, error);
  store_signs(n, data + sketch_at(e, n), [&](int i) { return error[i] < 0.0f; });
}

void TurboFormat::decode(const Encoding& e, int n, const std::byte* data, const std::byte* meta, int, int,
                         float* out) {
  uint16_t codes[kMaxHeadDim];
  load_codes(e.bits, n, data, data + signs_at(e, n), codes);
  const float scale = f16_to_f32(load<uint16_t>(meta, 0));
  for (int i = 0; i < n; ++i) out[i] = turbo_level(e.bits, codes[i]) * scale;
  if (!e.second) return;
  float sketched[kMaxHeadDim];
  const float each = f16_to_f32(load<uint16_t>(meta, 1)) * kSketchGain;
  for (int i = 0; i < n; ++i) sketched[i] = sign_at(data + sketch_at(e, n), i) ? -each : each;
  transform(n, sketched);
  flip(n, sketched);
  for (int i = 0; i < n; ++i) out[i] += sketched[i];
}

}  // namespace kv
