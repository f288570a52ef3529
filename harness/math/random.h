// Counter-based random numbers: the i-th number of a stream is a function of (key, i) alone, so any row of
// any tensor can be made on its own and always has the same bits.
//
// Mixing is splitmix64 (Steele, Lea, Flood, OOPSLA 2014). Logarithm, sine and cosine are own short
// polynomials, since the last bit of libm's differs from one machine to the next, and tensors must not.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

namespace kv::math::random {

// One strong 64-bit hash of all the parts, order included.
uint64_t key(std::initializer_list<uint64_t> parts);

// The i-th number of a stream: 64 random bits; uniform in (0, 1), never 0 or 1; an integer in [0, n).
uint64_t bits(uint64_t key, uint64_t i);
double uniform(uint64_t key, uint64_t i);
uint64_t below(uint64_t key, uint64_t i, uint64_t n);

// Independent N(0, 1) values by Box-Muller, 23 bits of radius: none is 0 and none beyond ±5.8. Any size.
void fill_normal(uint64_t key, std::span<float> out);

// cos and sin of a turn (1 = full circle), turn in [0, 1).
struct CosSin {
  float cos, sin;
};
CosSin cos_sin_of_turn(float turn);

}  // namespace kv::math::random
