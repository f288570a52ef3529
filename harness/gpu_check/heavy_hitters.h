// H2O's policy (Zhang et al. 2023, arXiv:2306.14048), decided on the GPU alone: it chooses a slot for the new token, stores
// its row there, attends, and adds the attention weights to its slots' scores.
#pragma once

#include <string>

#include "harness/gpu_check/scene.h"

namespace kv::gpu_check {

struct HeavyHitterShape {
  int heads = 4, group = 4, head_dim = 128;
  int32_t budget = 96, recent = 32;
};

class HeavyHitters {
 public:
  HeavyHitters(cuda::Gpu& gpu, const WriteNumbers& write, const HeavyHitterShape& shape, uint64_t seed);

  // Appends one token to every head.
  void step();
  // Takes a step and compares it with the policy and with FP64; returns the first difference, or nothing.
  std::string checked_step();

 private:
  struct Head {
    std::vector<int32_t> token;
    std::vector<float> score;
  };

  int32_t rows() const { return std::min(count_, shape_.budget); }
  Head head(int index) const;
  int32_t slot_for(const Head& head) const;
  std::string difference(int index, const Head& before) const;
  void attend();
  template <class T>
  std::vector<T> download(const T* from, size_t count) const;

  cuda::Gpu& gpu_;
  const WriteNumbers write_;
  const HeavyHitterShape shape_;
  const uint64_t seed_;
  int32_t count_ = 0;
  cuda::Layout layout_;
  DeviceBytes k_, v_, pages_, token_, score_, scored_slots_, slot_, new_rows_, jobs_, q_, out_, problems_,
      items_, max_, sum_, values_, logits_, log_sum_, counters_, weights_;
};

}  // namespace kv::gpu_check
