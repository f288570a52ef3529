#include "harness/verify/reference/hadamard.h"

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <cstdint>

namespace kv::reference {
namespace {

using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Rows matrix(int head_dim) {
  int n = 1;
  while (head_dim % (2 * n) == 0) n *= 2;
  Rows h = Rows::Zero(head_dim, head_dim);
  for (int i = 0; i < head_dim; ++i) {
    for (int j = i / n * n; j < i / n * n + n; ++j) {
      const int ones = std::popcount(static_cast<unsigned>(i % n) & static_cast<unsigned>(j % n));
      h(i, j) = (ones % 2 == 0 ? 1.0 : -1.0) / std::sqrt(static_cast<double>(n));
    }
  }
  return h;
}

}  // namespace

void hadamard(std::span<float> rows, int head_dim) {
  const Rows h = matrix(head_dim);
  Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>> all(
      rows.data(), static_cast<Eigen::Index>(rows.size()) / head_dim, head_dim);
  constexpr Eigen::Index kTogether = 1024;  // copies of f64 at a time
  for (Eigen::Index first = 0; first < all.rows(); first += kTogether) {
    auto part = all.middleRows(first, std::min(kTogether, all.rows() - first));
    const Rows product = part.cast<double>() * h;
    part = product.cast<float>();
  }
}

void flip_signs(std::span<float> rows, int head_dim) {
  uint64_t state = 0;
  for (size_t channel = 0; channel < static_cast<size_t>(head_dim); ++channel) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t mixed = (state ^ state >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    mixed ^= mixed >> 31;
    if (mixed < uint64_t{1} << 63) continue;
    for (size_t at = channel; at < rows.size(); at += static_cast<size_t>(head_dim)) rows[at] = -rows[at];
  }
}

}  // namespace kv::reference
