// Numbers close to N(0,1), from a counter.
#pragma once

#include <cstdint>

namespace kv::gpu_check {

// The sum of the four 16-bit pieces of splitmix64 (Steele et al. 2014): exact in f32 up to the one multiplication.
inline float normal_number(uint64_t seed, int64_t i) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(i) * 0xd1342543de82ef95u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  const auto sum = static_cast<int32_t>((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
  constexpr float kDeviation = 37837.2f;  // standard deviation of the sum: 65536 * sqrt(4 / 12)
  return static_cast<float>(sum - 2 * 65535) * (1.0f / kDeviation);
}

}  // namespace kv::gpu_check
