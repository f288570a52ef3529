#include "harness/math/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace kv::math::random {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

[[gnu::always_inline]] inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// ln(x) for x in (0, 1): x = m 2^e with m in [sqrt(1/2), sqrt(2)), then Cephes' logf polynomial in m - 1.
// Relative error below 1e-6 there, which no statistic of a tensor can see.
[[gnu::always_inline]] inline float log_of(float x) {
  const uint32_t shifted = std::bit_cast<uint32_t>(x) - 0x3f3504f3;  // sqrt(1/2)
  const int32_t exponent = static_cast<int32_t>(shifted) >> 23;
  const float m = std::bit_cast<float>((shifted & 0x007fffff) + 0x3f3504f3) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float square = m * m;
  return m + (square * m * p - 0.5f * square) + static_cast<float>(exponent) * 0.693147180559945f;
}

// A 23-bit integer as the middle of its cell of (0, 1): exact, never 0 or 1.
[[gnu::always_inline]] inline float unit(uint32_t bits23) {
  return (static_cast<float>(static_cast<int32_t>(bits23)) + 0.5f) * 0x1p-23f;
}

// The turn is taken to the nearest quarter; the rest, within ±1/8 turn, goes through Cephes' sinf and cosf
// polynomials. Always inlined: a call would keep fill_normal's loop from becoming SIMD.
[[gnu::always_inline]] inline CosSin cos_sin(float turn) {
  const int32_t quarter = static_cast<int32_t>(turn * 4.0f + 0.5f);
  const float x = (turn - static_cast<float>(quarter) * 0.25f) * 6.28318530717958648f;
  const float x2 = x * x;
  const float sin = ((-1.9515295891e-4f * x2 + 8.3321608736e-3f) * x2 - 1.6666654611e-1f) * x2 * x + x;
  const float cos =
      ((2.443315711809948e-5f * x2 - 1.388731625493765e-3f) * x2 + 4.166664568298827e-2f) * x2 * x2 -
      0.5f * x2 + 1.0f;
  const bool swap = quarter & 1;
  const float c = swap ? sin : cos, s = swap ? cos : sin;
  return {((quarter + 1) & 2) ? -c : c, (quarter & 2) ? -s : s};
}

// Box-Muller in blocks of pairs, one 64-bit number a pair, in loops that compilers turn into SIMD.
[[gnu::always_inline]] inline void fill(uint64_t key, std::span<float> out) {
  constexpr size_t kPairs = 64;
  uint32_t radius_bits[kPairs], turn_bits[kPairs];
  float radius[kPairs], values[2 * kPairs];
  for (size_t first = 0; first < out.size(); first += 2 * kPairs) {
    const size_t n = std::min(2 * kPairs, out.size() - first), pairs = (n + 31) / 32 * 16;
    float* to = n == 2 * pairs ? out.data() + first : values;
    for (size_t i = 0; i < pairs; ++i) {
      const uint64_t random = mix(key + (first / 2 + i + 1) * kGolden);
      radius_bits[i] = static_cast<uint32_t>(random >> 41);
      turn_bits[i] = static_cast<uint32_t>(random) & 0x7fffff;
    }
    for (size_t i = 0; i < pairs; ++i) radius[i] = std::sqrt(-2.0f * log_of(unit(radius_bits[i])));
    for (size_t i = 0; i < pairs; ++i) {
      const CosSin point = cos_sin(unit(turn_bits[i]));
      to[2 * i] = radius[i] * point.cos;
      to[2 * i + 1] = radius[i] * point.sin;
    }
    if (to == values) std::copy_n(values, n, out.data() + first);
  }
}

// The same for vectors of each width. No product and sum become one operation, so all give the same bits.
#ifdef __x86_64__
__attribute__((target("avx512f,avx512dq,avx512vl"))) void fill_avx512(uint64_t key, std::span<float> out) {
  fill(key, out);
}
__attribute__((target("avx2"))) void fill_avx2(uint64_t key, std::span<float> out) { fill(key, out); }
#endif
void fill_portable(uint64_t key, std::span<float> out) { fill(key, out); }

using Fill = void (*)(uint64_t, std::span<float>);
Fill best_fill() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) return fill_avx512;
  if (__builtin_cpu_supports("avx2")) return fill_avx2;
#endif
  return fill_portable;
}

}  // namespace

uint64_t key(std::initializer_list<uint64_t> parts) {
  uint64_t hash = 0;
  for (uint64_t part : parts) hash = mix((hash ^ mix(part + kGolden)) + kGolden);
  return hash;
}

uint64_t bits(uint64_t key, uint64_t i) { return mix(key + (i + 1) * kGolden); }

double uniform(uint64_t key, uint64_t i) { return (static_cast<double>(bits(key, i) >> 12) + 0.5) * 0x1p-52; }

// Multiply and shift: the bias is below n / 2^32, which no use here can see.
uint64_t below(uint64_t key, uint64_t i, uint64_t n) { return ((bits(key, i) >> 32) * n) >> 32; }

CosSin cos_sin_of_turn(float turn) { return cos_sin(turn); }

void fill_normal(uint64_t key, std::span<float> out) {
  static const Fill fill_best = best_fill();
  fill_best(key, out);
}

}  // namespace kv::math::random
