#include "harness/model/products.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#ifdef KVLAB_HAS_ONEDNN
#include <omp.h>

#include <dnnl.hpp>
#else
#include <Eigen/Core>
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

bool has_isa(dnnl_cpu_isa_t isa) {
  const auto needed = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & needed) == needed;
}

// The kernel for AVX2 sums six or twelve rows of x, as weights go, in another order than those that are left over.
int64_t rows_together(int64_t /*n*/) { return has_isa(dnnl_cpu_isa_avx512_core) ? 1 : 12; }

void multiply_whole(const float* x, int64_t n, const float* weights, int64_t rows, int64_t cols, float* y,
                    int64_t y_stride) {
  const OneThread alone;
  if (dnnl_sgemm('N', 'T', n, rows, cols, 1.0f, x, cols, weights, cols, 0.0f, y, y_stride) != dnnl_success)
    throw std::runtime_error("oneDNN refused a product of " + std::to_string(n) + " x " +
                             std::to_string(cols) + " x " + std::to_string(rows));
}

}  // namespace

bool can_multiply_bf16() { return has_isa(dnnl_cpu_isa_avx512_core_bf16); }

void multiply_bf16(const uint16_t* x, int64_t n, const std::byte* weights, int64_t rows, int64_t cols,
                   float* y, int64_t y_stride) {
  using dnnl::memory;
  if (!can_multiply_bf16()) throw std::logic_error("no instructions for bf16");
  const OneThread alone;
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(cpu);
  const memory::desc from({n, cols}, memory::data_type::bf16, memory::format_tag::ab),
      by({cols, rows}, memory::data_type::bf16, memory::format_tag::ba),
      to({n, rows}, memory::data_type::f32, memory::dims{y_stride, 1});
  const dnnl::matmul::primitive_desc product({from, by, to},
                                             cpu);  // found in oneDNN's own cache of primitives
  dnnl::matmul(product).execute(stream, {{DNNL_ARG_SRC, memory(from, cpu, const_cast<uint16_t*>(x))},
                                         {DNNL_ARG_WEIGHTS, memory(by, cpu, const_cast<std::byte*>(weights))},
                                         {DNNL_ARG_DST, memory(to, cpu, y)}});
  stream.wait();
}

std::string product_library() {
  const dnnl_version_t& v = *dnnl_version();
  return "oneDNN " + std::to_string(v.major) + "." + std::to_string(v.minor) + "." + std::to_string(v.patch);
}

#else

namespace {

// Eigen sums four rows of x in another order than those that are left over.
int64_t rows_together(int64_t n) { return n > 4 ? 4 : 1; }

void multiply_whole(const float* x, int64_t n, const float* weights, int64_t rows, int64_t cols, float* y,
                    int64_t y_stride) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Const = Eigen::Map<const Matrix>;
  using Strided = Eigen::Map<Matrix, Eigen::Unaligned, Eigen::OuterStride<> >;
  Strided(y, n, rows, Eigen::OuterStride<>(y_stride)).noalias() =
      Const(x, n, cols) * Const(weights, rows, cols).transpose();
}

}  // namespace

bool can_multiply_bf16() { return false; }

void multiply_bf16(const uint16_t*, int64_t, const std::byte*, int64_t, int64_t, float*, int64_t) {
  throw std::logic_error("Eigen does not multiply bf16");
}

std::string product_library() {
  return "Eigen " + std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
         std::to_string(EIGEN_MINOR_VERSION);
}

#endif

void multiply(const float* x, int64_t n, const float* weights, int64_t rows, int64_t cols, float* y,
              int64_t y_stride) {
  const int64_t together = rows_together(n), whole = (n + together - 1) / together * together;
  if (n == whole) return multiply_whole(x, n, weights, rows, cols, y, y_stride);
  std::vector<float> padded(static_cast<size_t>(whole * cols)), sums(static_cast<size_t>(whole * rows));
  std::copy_n(x, n * cols, padded.data());
  multiply_whole(padded.data(), whole, weights, rows, cols, sums.data(), rows);
  for (int64_t t = 0; t < n; ++t) std::copy_n(sums.data() + t * rows, rows, y + t * y_stride);
}

}  // namespace kv::model
