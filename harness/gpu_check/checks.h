// The stages of gpu-check that run on the GPU. Each prints a line of JSON as a case ends, so that a stage that runs out of
// time keeps its rows, and returns whether all cases passed.
#pragma once

#include "kernels/cuda/gpu.h"

namespace kv::cuda {
struct CudaGpu;
}

namespace kv::gpu_check {

bool check_wrappers(cuda::CudaGpu& gpu);
// `small`: sizes for a sanitizer, which is slow.
bool check_kernels(cuda::Gpu& gpu, bool small);
// Checks attention split and whole, then times both.
bool compare_splits(cuda::Gpu& gpu);

}  // namespace kv::gpu_check
