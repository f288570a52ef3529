#include "harness/model/products.h"

#include <stdexcept>

#ifdef KVLAB_HAS_ONEDNN
#include <omp.h>

#include <dnnl.hpp>
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
  return "kvlab, bf16 by oneDNN " + std::to_string(v.major) + "." + std::to_string(v.minor) + "." +
         std::to_string(v.patch);
}

#else

bool can_multiply_bf16() { return false; }

void multiply_bf16(const uint16_t*, int64_t, const std::byte*, int64_t, int64_t, float*, int64_t) {
  throw std::logic_error("this build multiplies no bf16");
}

std::string product_library() { return "kvlab"; }

#endif

}  // namespace kv::model
