#include "kernels/benchmarks/eigen_gemm.h"

#include <Eigen/Core>

namespace kv {

void eigen_gemms(const float* q, const float* k, const float* v, int64_t queries, int64_t rows, int head_dim,
                 float* scores, float* out) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Const = Eigen::Map<const Matrix>;
  using Mutable = Eigen::Map<Matrix>;
  Mutable s(scores, queries, rows);
  s.noalias() = Const(q, queries, head_dim) * Const(k, rows, head_dim).transpose();
  Mutable(out, queries, head_dim).noalias() = s * Const(v, rows, head_dim);
}

}  // namespace kv
