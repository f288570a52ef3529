// The stages of gpu-check that run on the GPU. Each prints a line of JSON as a case ends, so that a stage that runs out of
// time keeps its rows, and returns whether all cases passed.
#pragma once

#include "harness/gpu_check/scene.h"
#include "kernels/cuda/cuda_gpu.h"

namespace kv::gpu_check {

// Makes a scene's numbers on the GPU.
WriteNumbers writer(const cuda::CudaGpu& gpu);

bool check_wrappers(cuda::CudaGpu& gpu);
// `small`: sizes for a sanitizer, which is slow.
bool check_kernels(cuda::CudaGpu& gpu, bool small);
// Checks attention split and whole, then times both.
bool compare_splits(cuda::CudaGpu& gpu);

}  // namespace kv::gpu_check
