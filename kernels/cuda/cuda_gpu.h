// kernels/cuda/gpu.h over CUDA's runtime, for files that nvcc compiles; others use Gpu alone.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/gpu.h"

namespace kv::cuda {

// Throws std::runtime_error that names the call, GpuLost if later calls would fail as well, or std::bad_alloc if memory is short.
void check(cudaError_t error, const char* call);
#define KV_CHECK(call) ::kv::cuda::check(call, #call)

// The GPU that open_gpu() returns.
struct CudaGpu : Gpu {
  // Runs all launches in order.
  virtual cudaStream_t stream() const = 0;
};

}  // namespace kv::cuda
