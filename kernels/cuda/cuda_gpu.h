// kernels/cuda/gpu.h over CUDA's runtime. For files that nvcc compiles; others know Gpu alone.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/gpu.h"

namespace kv::cuda {

// Throws std::runtime_error that names the call, or std::bad_alloc where memory is short.
void check(cudaError_t error, const char* call);
#define KV_CHECK(call) ::kv::cuda::check(call, #call)

// What open_gpu() gives.
struct CudaGpu : Gpu {
  // All launches go here, in order.
  virtual cudaStream_t stream() const = 0;
};

}  // namespace kv::cuda
