// NumPy's default_rng(seed).integers(low, high, n) for small ranges, so that a protocol stated in NumPy can
// be run here.
//
// SeedSequence spreads the seed over 256 bits, PCG64 (XSL-RR) makes 64 bits a step, of which integers() uses
// the lower half and then the upper, and Lemire's method makes them uniform. https://www.pcg-random.org,
// arXiv:1805.10941.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kv::test {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed) {
    const std::array<uint64_t, 4> words = seed_sequence(seed);
    const Wide start = Wide{words[0]} << 64 | words[1];
    increment_ = (Wide{words[2]} << 64 | words[3]) << 1 | 1;
    step();
    state_ += start;
    step();
  }

  // n integers in [low, high).
  std::vector<int> integers(int low, int high, size_t n) {
    std::vector<int> out;
    for (size_t i = 0; i < n; ++i)
      out.push_back(low + static_cast<int>(below(static_cast<uint32_t>(high - low))));
    return out;
  }

 private:
  __extension__ using Wide = unsigned __int128;

  static std::array<uint64_t, 4> seed_sequence(uint32_t seed) {
    std::array<uint32_t, 4> pool = {seed, 0, 0, 0};
    uint32_t hash = 0x43b0d7e5;
    const auto scramble = [&hash](uint32_t value, uint32_t multiplier) {
      value ^= hash;
      hash *= multiplier;
      value *= hash;
      return value ^ value >> 16;
    };
    for (uint32_t& word : pool) word = scramble(word, 0x931e8875);
    for (size_t from = 0; from < 4; ++from) {
      for (size_t to = 0; to < 4; ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * scramble(pool[from], 0x931e8875);
        pool[to] = mixed ^ mixed >> 16;
      }
    }
    hash = 0x8b51f9dd;
    std::array<uint64_t, 4> words;
    for (size_t i = 0; i < 4; ++i) {
      const uint64_t lower = scramble(pool[2 * i % 4], 0x58f38ded);
      words[i] = lower | uint64_t{scramble(pool[(2 * i + 1) % 4], 0x58f38ded)} << 32;
    }
    return words;
  }

  void step() { state_ = state_ * (Wide{2549297995355413924u} << 64 | 4865540595714422341u) + increment_; }

  uint32_t next32() {
    if (has_upper_) {
      has_upper_ = false;
      return upper_;
    }
    step();
    const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const uint64_t bits = std::rotr(folded, static_cast<int>(state_ >> 122));
    upper_ = static_cast<uint32_t>(bits >> 32);
    has_upper_ = true;
    return static_cast<uint32_t>(bits);
  }

  uint32_t below(uint32_t range) {
    const uint32_t uneven = -range % range;  // 2^32 mod range
    for (;;) {
      const uint64_t product = uint64_t{next32()} * range;
      if (static_cast<uint32_t>(product) >= uneven) return static_cast<uint32_t>(product >> 32);
    }
  }

  Wide state_ = 0, increment_ = 0;
  uint32_t upper_ = 0;
  bool has_upper_ = false;
};

}  // namespace kv::test
