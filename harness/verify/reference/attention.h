// The FP64 oracle, in Eigen. It judges kernels/ and variants/ and must share no code with them.
#pragma once

#include <Eigen/Core>
#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kv::reference {

using RowMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// softmax(q k^T / sqrt(head_dim)) v for one query head.
struct HeadResult {
  Eigen::VectorXd out;            // [head_dim]
  Eigen::VectorXd probabilities;  // [rows], sums to 1 - sink
  double sink = 0;                // the sink's probability
};

// Terms of a model's softmax beside the rows' scores.
struct SoftmaxTerms {
  std::optional<double> sink{};  // one more score without a value (gpt-oss)
  double cap = 0;                // scores s become cap * tanh(s / cap), except the sink's; 0: none (Gemma 2)
};

// q [head_dim], k and v [rows, head_dim], rows >= 1. f32 in, FP64 throughout; rows that many queries read may be
// FP64.
HeadResult attend(std::span<const float> q, std::span<const float> k, std::span<const float> v, int64_t rows,
                  const SoftmaxTerms& terms = {});
HeadResult attend(std::span<const float> q, std::span<const double> k, std::span<const double> v,
                  int64_t rows, const SoftmaxTerms& terms = {});

// RoPE.
struct Rotation {
  std::vector<double> frequency;  // radians a position, for each pair of channels
  bool half_split = false;        // pair i is channels i and i + pairs; else interleaved: 2i and 2i + 1
};
// theta^(-2i / head_dim), as in the paper (arXiv:2104.09864).
Rotation plain_rotation(double theta, int head_dim, bool half_split);

// A rotation over 0, 1, … distances - 1 positions. Sines dominate a replay of many steps, so they are computed once:
// for distances below kFine and for multiples of kFine.
class RotationTable {
 public:
  RotationTable() = default;
  RotationTable(const Rotation& rotation, int64_t distances);
  int64_t distances() const { return distances_; }
  bool half_split() const { return half_split_; }
  Eigen::Index pairs() const { return fine_.cols(); }
  // exp(-i distance frequency) of a pair.
  std::complex<double> back(int64_t distance, Eigen::Index pair) const {
    return coarse_(distance / kFine, pair) * fine_(distance % kFine, pair);
  }

 private:
  static constexpr int64_t kFine = 256;
  using Table = Eigen::Matrix<std::complex<double>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  static Table table(const Rotation& rotation, int64_t rows, int64_t step);

  int64_t distances_ = 0;
  bool half_split_ = false;
  Table fine_, coarse_;  // [distances, pairs]
};

// attend() with q and k from before RoPE. Only distances matter, so each key is rotated back by its own: the key of
// row i stands distance[i] positions before the query. `rotations` must reach the largest distance.
HeadResult attend_rotated(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                          const RotationTable& rotations, std::span<const int64_t> distance,
                          const SoftmaxTerms& terms = {});
HeadResult attend_rotated(std::span<const float> q, std::span<const double> k, std::span<const double> v,
                          const RotationTable& rotations, std::span<const int64_t> distance,
                          const SoftmaxTerms& terms = {});

// A whole causal sequence: q [q_heads, n, head_dim], k, v [kv_heads, n, head_dim]. Query head h reads KV head h /
// (q_heads / kv_heads); token t sees tokens 0…t. Returns [q_heads, n, head_dim].
std::vector<double> attend_causal(std::span<const float> q, std::span<const float> k,
                                  std::span<const float> v, int q_heads, int kv_heads, int64_t n,
                                  int head_dim);

}  // namespace kv::reference
