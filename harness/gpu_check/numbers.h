// Numbers that look like N(0,1), from a counter: the same bits wherever they are made.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"

namespace kv::gpu_check {

// splitmix64 (Steele et al. 2014), and its four 16-bit pieces added up: exact in f32 until the one
// multiplication.
KV_HD inline float normal_number(uint64_t seed, int64_t i) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(i) * 0xd1342543de82ef95u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  const auto sum = static_cast<int32_t>((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
  constexpr float kDeviation = 37837.2f;  // of the sum: 65536 * sqrt(4 / 12)
  return static_cast<float>(sum - 2 * 65535) * (1.0f / kDeviation);
}

}  // namespace kv::gpu_check
