// Eviction on the GPU: the slots that its kernel chooses, compared with the policies by their definition.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/gpu.h"

namespace kv::gpu_check {

// Compares the slots of the last 40 tokens of a budget and of 40 more, scores that tie and NaN among them, for H2O (Zhang et al.
// 2023, arXiv:2306.14048) or TOVA (`newest_query`). Returns the first difference, or nothing.
std::string wrong_choice(cuda::Gpu& gpu, bool newest_query, uint64_t seed);

}  // namespace kv::gpu_check
