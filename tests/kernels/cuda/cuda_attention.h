// Attention problems of gpu-check in the tests' formats; the GPU's kernels run on them through the shim.
#pragma once

#include <gtest/gtest.h>

#include "harness/gpu_check/problem.h"
#include "tests/kernels/cuda/simt_gpu.h"
#include "tests/kernels/paged_head.h"

namespace kv::test {

using gpu_check::GpuBatch;
using gpu_check::GpuCase;
using gpu_check::GpuProblem;

inline std::vector<GpuProblem> make_problems(const std::vector<GpuCase>& cases) {
  std::vector<GpuProblem> problems;
  uint64_t seed = 1;
  for (const GpuCase& c : cases) problems.emplace_back(c, seed += 1000);
  return problems;
}

// Few rows a split, so that small cases have several splits.
inline constexpr int32_t kSimpleRows = 64;
// So many rows that a warp's ring wraps around, and no multiple of the rows that the warps take at once.
inline constexpr int32_t kFastRows = 352;

inline constexpr int kHopperBytes = 227 << 10;

// f32 arithmetic; both read the same encoded rows.
inline constexpr double kBound = 3e-6;

}  // namespace kv::test
