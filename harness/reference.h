// The FP64 oracle, in Eigen. Shares no code with kernels/ or variants/, and must not: it is what they are
// judged by.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <vector>

namespace kv::reference {

using RowMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// softmax(q k^T / sqrt(head_dim)) v for one query head.
struct HeadResult {
  Eigen::VectorXd out;            // [head_dim]
  Eigen::VectorXd probabilities;  // [rows], sums to 1
};

// q [head_dim], k and v [rows, head_dim], rows >= 1. f32 in, FP64 throughout.
HeadResult attend(std::span<const float> q, std::span<const float> k, std::span<const float> v, int64_t rows);

// A whole causal sequence: q [q_heads, n, head_dim], k, v [kv_heads, n, head_dim]; query head h reads kv head
// h / (q_heads / kv_heads); token t sees tokens 0…t. Returns [q_heads, n, head_dim].
std::vector<double> attend_causal(std::span<const float> q, std::span<const float> k,
                                  std::span<const float> v, int q_heads, int kv_heads, int64_t n,
                                  int head_dim);

}  // namespace kv::reference
