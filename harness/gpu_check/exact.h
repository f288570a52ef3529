// Attention in FP64, by its definition: the reference of the kernels' outputs.
#pragma once

#include <span>
#include <vector>

namespace kv::gpu_check {

inline constexpr double kBound =
    5e-6;  // relative, f32 arithmetic with the hardware's exp2; the tests' bound is 3e-6

struct Exact {
  std::vector<double> out;      // [group, head_dim]
  std::vector<double> weights;  // [rows] attention weight of each row, summed over the group
};

// q [group, head_dim], k and v [rows, head_dim].
Exact attend_exactly(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                     int head_dim);

// ||got - want|| / ||want||.
double relative_error(const std::vector<float>& got, const std::vector<double>& want);

}  // namespace kv::gpu_check
