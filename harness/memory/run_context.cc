#include "harness/memory/run_context.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels/cpu/isa.h"
#include "kernels/cuda/gpu.h"

namespace kv::memory {
namespace {

std::unique_ptr<cuda::Gpu> open_device(std::string_view name) {
  if (name == "cpu") return nullptr;
  if (name == "cuda") return cuda::open_gpu();
  throw std::invalid_argument("no device '" + std::string(name) + "'; known: cpu, cuda");
}

}  // namespace

// Kernels keep a tile's scores and codes on their thread's stack. A thread has what OMP_STACKSIZE says, else what `ulimit -s`
// left when the program began.
void require_stack() {
  constexpr size_t kNeeded = size_t{1} << 20;
  const char* asked = std::getenv("OMP_STACKSIZE");
  pthread_attr_t threads;
  size_t bytes = kNeeded;
  if (pthread_getattr_default_np(&threads) == 0) pthread_attr_getstacksize(&threads, &bytes);
  char unit = 'k';
  if (size_t count = 0; asked && std::sscanf(asked, "%zu %c", &count, &unit) > 0) {
    const size_t power = std::string_view("bkmg").find(static_cast<char>(std::tolower(unit)));
    if (power != std::string_view::npos) bytes = std::min(bytes, count << 10 * power);
  }
  if (bytes < kNeeded)
    throw std::invalid_argument("a thread's stack has " + std::to_string(bytes >> 10) +
                                " KiB here and needs 1024: ulimit -s 8192, and no smaller OMP_STACKSIZE");
}

RunContext::RunContext(std::string_view device, std::string_view isa, int threads)
    : threads_(std::min(threads > 0 ? threads : omp_get_num_procs(), most_threads())) {
  require_stack();
  cpu::force_isa(isa);
  gpu_ = open_device(device);
}

RunContext::RunContext(std::unique_ptr<cuda::Gpu> gpu) : RunContext() { gpu_ = std::move(gpu); }

RunContext::~RunContext() = default;

int most_threads() { return omp_get_thread_limit(); }

ThreadCount::ThreadCount(int threads) : before_(omp_get_max_threads()) {
  omp_set_dynamic(0);  // OMP_DYNAMIC would give fewer than are recorded
  omp_set_num_threads(threads);
}

ThreadCount::~ThreadCount() { omp_set_num_threads(before_); }

}  // namespace kv::memory
