#include "harness/memory/run_context.h"

#include <omp.h>

#include <stdexcept>
#include <string>

#include "kernels/cpu/isa.h"
#include "kernels/cuda/gpu.h"

namespace kv::memory {
namespace {

std::unique_ptr<cuda::Gpu> open_device(std::string_view name) {
  if (name == "cpu") return nullptr;
  if (name == "cuda") return cuda::open_gpu();
  throw std::invalid_argument("no device '" + std::string(name) + "'; there are: cpu, cuda");
}

}  // namespace

RunContext::RunContext(std::string_view device, std::string_view isa, int threads)
    : threads_(threads > 0 ? threads : omp_get_num_procs()) {
  cpu::force_isa(isa);
  gpu_ = open_device(device);
}

RunContext::RunContext(std::unique_ptr<cuda::Gpu> gpu) : RunContext() { gpu_ = std::move(gpu); }

RunContext::~RunContext() = default;

ThreadCount::ThreadCount(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }

ThreadCount::~ThreadCount() { omp_set_num_threads(before_); }

}  // namespace kv::memory
