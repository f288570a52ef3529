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

// RoPE.
struct Rotation {
  std::vector<double> frequency;  // of each pair of channels, radians a position
  bool halves = false;            // pair i is channels i and i + pairs; else 2i and 2i + 1
};
// theta^(-2i / head_dim), as in the paper (arXiv:2104.09864).
Rotation plain_rotation(double theta, int head_dim, bool halves);

// attend() where q and k are as they were before RoPE, and the key of row i stands distance[i] positions
// before the query: only distances matter, so each key is turned back by its own.
HeadResult attend_turned(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                         const Rotation& rotation, std::span<const int64_t> distance);

// A whole causal sequence: q [q_heads, n, head_dim], k, v [kv_heads, n, head_dim]; query head h reads kv head
// h / (q_heads / kv_heads); token t sees tokens 0…t. Returns [q_heads, n, head_dim].
std::vector<double> attend_causal(std::span<const float> q, std::span<const float> k,
                                  std::span<const float> v, int q_heads, int kv_heads, int64_t n,
                                  int head_dim);

}  // namespace kv::reference
