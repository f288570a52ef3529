#include "harness/model/products.h"

#ifdef KVLAB_HAS_ONEDNN
#include <dnnl.h>
#include <omp.h>

#include <stdexcept>
#else
#include <Eigen/Core>
#include <algorithm>
#endif

namespace kv::model {

#ifdef KVLAB_HAS_ONEDNN

namespace {

// While this is there, what this thread calls starts no others: outside of parallel regions oneDNN wakes all of them, for
// longer than a small product takes.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int threads_ = omp_get_max_threads();
};

}  // namespace

void multiply(const float* x, int64_t n, const float* weights, int64_t rows, int64_t cols, float* y,
              int64_t y_stride) {
  const OneThread alone;
  if (dnnl_sgemm('N', 'T', n, rows, cols, 1.0f, x, cols, weights, cols, 0.0f, y, y_stride) != dnnl_success)
    throw std::runtime_error("oneDNN refused a product of " + std::to_string(n) + " x " +
                             std::to_string(cols) + " x " + std::to_string(rows));
}

std::string product_library() {
  const dnnl_version_t& v = *dnnl_version();
  return "oneDNN " + std::to_string(v.major) + "." + std::to_string(v.minor) + "." + std::to_string(v.patch);
}

#else

void multiply(const float* x, int64_t n, const float* weights, int64_t rows, int64_t cols, float* y,
              int64_t y_stride) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Const = Eigen::Map<const Matrix>;
  // Eigen sums four rows of x in another order than those that are left over.
  constexpr int64_t kTogether = 4;
  if (n > kTogether && n % kTogether != 0) {
    Matrix whole = Matrix::Zero(n + kTogether - n % kTogether, cols), out(whole.rows(), rows);
    whole.topRows(n) = Const(x, n, cols);
    multiply(whole.data(), whole.rows(), weights, rows, cols, out.data(), rows);
    for (int64_t t = 0; t < n; ++t) std::copy_n(out.row(t).data(), rows, y + t * y_stride);
    return;
  }
  using Strided = Eigen::Map<Matrix, Eigen::Unaligned, Eigen::OuterStride<> >;
  Strided(y, n, rows, Eigen::OuterStride<>(y_stride)).noalias() =
      Const(x, n, cols) * Const(weights, rows, cols).transpose();
}

std::string product_library() {
  return "Eigen " + std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
         std::to_string(EIGEN_MINOR_VERSION);
}

#endif

}  // namespace kv::model
