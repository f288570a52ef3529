// Numbers from N(0, 1) for tests' inputs. std::normal_distribution takes long logarithms one by one, which was half of the time of
// the kernels' tests under a sanitizer; these come in blocks.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "harness/math/random.h"

namespace kv::test {

// A stream of a seed: each call gives the next number.
class Normal {
 public:
  explicit Normal(uint64_t seed) : seed_(seed) {}
  float operator()() {
    if (at_ == block_.size()) {
      math::random::fill_normal(math::random::key({seed_, blocks_++}), block_);
      at_ = 0;
    }
    return block_[at_++];
  }

 private:
  const uint64_t seed_;
  uint64_t blocks_ = 0;
  std::array<float, 1024> block_;
  size_t at_ = block_.size();
};

// `count` of them, times `deviation`.
inline std::vector<float> gaussian(int64_t count, uint64_t seed, float deviation = 1.0f) {
  std::vector<float> values(static_cast<size_t>(count));
  math::random::fill_normal(math::random::key({seed}), values);
  for (float& x : values) x *= deviation;
  return values;
}

}  // namespace kv::test
