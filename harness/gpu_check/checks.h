// The stages of gpu-check that run on the GPU. Each prints a line of JSON for each case as it is done, so
// that a stage that is cut off leaves what it has. They return whether all cases were right.
#pragma once

#include "harness/gpu_check/scene.h"
#include "kernels/cuda/cuda_gpu.h"

namespace kv::gpu_check {

// Makes a scene's numbers on the GPU itself.
WriteNumbers writer(const cuda::CudaGpu& gpu);

bool check_wrappers(cuda::CudaGpu& gpu);
// `small`: sizes that a sanitizer gets through.
bool check_kernels(cuda::CudaGpu& gpu, bool small);
// Stops before a case that would begin after `seconds`.
bool benchmark(cuda::CudaGpu& gpu, double seconds);

}  // namespace kv::gpu_check
