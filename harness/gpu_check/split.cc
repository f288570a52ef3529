// Flash-Decoding's claim (Dao et al. 2023) on this GPU: one sequence with K and V split over thread blocks, beside one work
// item a (sequence, KV head), which leaves most multiprocessors idle. `kvlab run` times all else and cannot turn splits off.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "harness/gpu_check/checks.h"
#include "harness/gpu_check/codecs.h"
#include "harness/gpu_check/problem.h"

namespace kv::gpu_check {
namespace {

constexpr int kGraphs = 8;

struct Timed {
  double error, us;
};

// Verifies a step, then times steps in one graph, over batches that together exceed the L2 four times.
Timed timed(cuda::Gpu& gpu, std::vector<GpuProblem>& heads, AttentionPlan::Cut cut) {
  const GpuCase& c = heads.front().shape;
  const int64_t bytes = int64_t{4} * c.rows * std::ssize(heads) * c.head_dim;  // f16 K and V
  std::vector<std::unique_ptr<GpuBatch>> batches;
  do {
    batches.push_back(std::make_unique<GpuBatch>(gpu, heads, GpuBatch::Options{.cut = cut}));
  } while (std::ssize(batches) * bytes < 4 * static_cast<int64_t>(gpu.info().l2_bytes));
  batches.front()->step();
  batches.front()->fetch();
  const double error = heads.front().relative_error();
  const auto steps = [&] {
    for (const auto& batch : batches) batch->step();
  };
  std::vector<double> us;
  for (int i = 0; i < kGraphs; ++i)
    us.push_back(gpu.time_us(cuda::Gpu::Timed::kGraph, steps) / static_cast<double>(batches.size()));
  std::nth_element(us.begin(), us.begin() + kGraphs / 2, us.end());
  return {error, us[kGraphs / 2]};
}

}  // namespace

bool compare_splits(cuda::Gpu& gpu) {
  bool all = true;
  for (const int32_t seq_len : {1024, 2048, cuda::kMostItemRows}) {  // one item can hold these
    std::vector<GpuProblem> heads;
    for (uint64_t i = 0; i < 8; ++i)
      heads.emplace_back(GpuCase{codec_named("f16"), 128, 4, seq_len}, 100 * i + 17);
    const Timed split = timed(gpu, heads, AttentionPlan::Cut::kEven),
                whole = timed(gpu, heads, AttentionPlan::Cut::kWhole);
    const bool ok = split.error <= kBound && whole.error <= kBound;
    std::printf(
        "{\"stage\": \"split\", \"name\": \"1 x %d\", \"status\": \"%s\", \"split_us\": %.3f, \"whole_us\": "
        "%.3f, "
        "\"speedup\": %.3f}\n",
        seq_len, ok ? "ok" : "failed", split.us, whole.us, whole.us / split.us);
    std::fflush(stdout);
    all &= ok;
  }
  return all;
}

}  // namespace kv::gpu_check
