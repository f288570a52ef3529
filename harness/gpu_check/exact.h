// Attention in FP64, by its definition: what the kernels' outputs are held against.
#pragma once

#include <vector>

namespace kv::gpu_check {

struct Exact {
  std::vector<double> out;      // [group, head_dim]
  std::vector<double> weights;  // [rows] probability that each row got, summed over the group
};

// q [group, head_dim], k and v [rows, head_dim].
Exact attend_exactly(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
                     int head_dim);

// ||got - want|| / ||want||.
double relative_error(const std::vector<float>& got, const std::vector<double>& want);

}  // namespace kv::gpu_check
