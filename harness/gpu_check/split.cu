// Flash-Decoding's claim (Dao et al. 2023) on this GPU: one sequence with K and V split over thread blocks, beside one work
// item a (sequence, KV head), which leaves most multiprocessors idle. `kvlab run` times all else and cannot turn splits off.
#include <algorithm>
#include <cstdio>

#include "harness/gpu_check/checks.h"
#include "harness/gpu_check/exact.h"

namespace kv::gpu_check {
namespace {

constexpr int kGraphs = 8;

struct Timed {
  double error, us;
};

// Verifies a step, then times steps in one graph, over scenes that together exceed the L2 four times.
Timed timed(cuda::CudaGpu& gpu, const SceneShape& shape) {
  const int64_t bytes = int64_t{4} * shape.rows[0] * shape.kv_heads * shape.head_dim;  // f16 K and V
  std::vector<Scene> scenes;
  do {
    scenes.emplace_back(gpu, writer(gpu), shape, scenes.size() + 1);
  } while (std::ssize(scenes) * bytes < 4 * static_cast<int64_t>(gpu.info().l2_bytes));
  scenes.front().step(Scene::Path::kOneLaunch);
  gpu.synchronize();
  const double error = scenes.front().relative_error(0);
  const auto steps = [&] {
    for (Scene& scene : scenes) scene.step(Scene::Path::kOneLaunch);
  };
  std::vector<double> us;
  for (int i = 0; i < kGraphs; ++i) {
    us.push_back(gpu.time_us(cuda::Gpu::Timed::kGraph, steps) / static_cast<double>(scenes.size()));
  }
  std::nth_element(us.begin(), us.begin() + kGraphs / 2, us.end());
  return {error, us[kGraphs / 2]};
}

}  // namespace

bool compare_splits(cuda::CudaGpu& gpu) {
  bool all = true;
  for (const int32_t seq_len : {1024, 2048, cuda::kMostItemRows}) {  // one item can hold these
    SceneShape shape{codec_named("f16"), 128, 8, 4, {seq_len}};
    const Timed split = timed(gpu, shape);
    shape.split = false;
    const Timed whole = timed(gpu, shape);
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
