// Times on the real GPU: what reading alone reaches, then decode and append over shapes and codecs, then
// reading again, since a GPU whose ceiling moved was not the same GPU throughout.
//
// Cold: single calls, each over rows that the L2 has long forgotten, since the buffers that take turns are
// several times its size. Steady: calls back to back over all of these buffers, as layers of a model follow each
// other. Either is one graph.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>

#include "harness/gpu_check/checks.h"
#include "kernels/format/encoding.h"

namespace kv::gpu_check {
namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

constexpr int kColdCalls = 40, kLeastGraphCalls = 32, kGraphs = 8;

// `call(i)` launches the i-th call; i picks the buffers, of which `buffers` take turns.
double cold_us(cuda::Gpu& gpu, const std::function<void(int)>& call) {
  std::vector<double> times;
  for (int i = 0; i < kColdCalls; ++i) {
    times.push_back(gpu.time_us(cuda::Gpu::Timed::kGraph, [&] { call(i); }));
  }
  return median(times);
}

double steady_us(cuda::Gpu& gpu, size_t buffers, const std::function<void(int)>& call) {
  const int calls = std::max(kLeastGraphCalls, static_cast<int>(buffers));
  const auto all = [&] {
    for (int i = 0; i < calls; ++i) call(i);
  };
  std::vector<double> times;
  for (int i = 0; i < kGraphs; ++i) times.push_back(gpu.time_us(cuda::Gpu::Timed::kGraph, all) / calls);
  return median(times);
}

// The best of the numbers of blocks that are worth trying.
double ceiling_gb_s(cuda::CudaGpu& gpu, const char* when) {
  constexpr int64_t kBytes = int64_t{4} << 30;
  const DeviceBytes data(gpu, kBytes), sum(gpu, 4);
  KV_CHECK(cudaMemsetAsync(data.as<std::byte>(), 0x5a, kBytes, gpu.stream()));
  double best = 0.0;
  int best_blocks = 0;
  for (const int blocks : cuda::kReadBlocks) {
    const double us = cold_us(gpu, [&](int) {
      gpu.read_all({data.as<std::byte>(), kBytes / 16, sum.as<uint32_t>()},
                   blocks * gpu.info().multiprocessors);
    });
    const double gb_s = static_cast<double>(kBytes) / us * 1e-3;
    if (gb_s > best) best_blocks = blocks;
    best = std::max(best, gb_s);
  }
  std::printf(
      "{\"stage\": \"ceiling\", \"name\": \"%s\", \"read_gb_s\": %.1f, \"blocks_of_sm\": %d, "
      "\"sm_mhz\": %d}\n",
      when, best, best_blocks, gpu.sm_mhz());
  std::fflush(stdout);
  return best;
}

struct Point {
  int batch;
  int32_t seq_len;
  int kv_heads, group, head_dim;
  int32_t page_rows;
};

SceneShape shape_of(const CodecChoice& codec, const Point& p) {
  const int32_t tail = codec.unit_rows() > 1 ? 128 : 0;
  return {
      codec, p.head_dim, p.kv_heads, p.group, std::vector<int32_t>(static_cast<size_t>(p.batch), p.seq_len),
      tail,  p.page_rows};
}

// Scenes of one shape, together several times the L2, and at most what 16 GiB hold, or half of what is free. A GPU
// that takes turns with fewer has some of the rows in its L2, however few bytes a codec makes of them.
constexpr int64_t kMostScenes = 256;
std::vector<Scene> make_scenes(cuda::CudaGpu& gpu, const SceneShape& shape) {
  std::vector<Scene> scenes;
  scenes.emplace_back(gpu, writer(gpu), shape, 1);
  const int64_t bytes = scenes.front().kv_bytes();
  const int64_t wanted = 4 * static_cast<int64_t>(gpu.info().l2_bytes) / bytes + 2;
  const auto half = static_cast<int64_t>(gpu.info().free_bytes / 2);
  const int64_t room = std::max<int64_t>(1, std::min(int64_t{16} << 30, half) / bytes);
  while (std::ssize(scenes) < std::min({wanted, room, kMostScenes})) {
    scenes.emplace_back(gpu, writer(gpu), shape, scenes.size() + 1);
  }
  return scenes;
}

// Verifies, then times. False if the output is wrong.
bool measure_decode(cuda::CudaGpu& gpu, const CodecChoice& codec, const Point& p, double ceiling) {
  std::vector<Scene> scenes = make_scenes(gpu, shape_of(codec, p));
  if (!scenes.front().is_fast()) return true;  // the stage "kernels" says so
  scenes.front().step(Scene::Path::kOneLaunch);
  gpu.synchronize();
  const double error = std::max(scenes.front().relative_error(0),
                                scenes.front().relative_error(scenes.front().problems() - 1));
  const bool ok = error <= 5e-6;
  const auto call = [&](int i) {
    scenes[static_cast<size_t>(i) % scenes.size()].step(Scene::Path::kOneLaunch);
  };
  const double cold = ok ? cold_us(gpu, call) : 0.0, steady = ok ? steady_us(gpu, scenes.size(), call) : 0.0;
  const auto bytes = static_cast<double>(scenes.front().kv_bytes());
  const double share = ok ? bytes / steady * 1e-3 / ceiling : 0.0;
  std::printf(
      "{\"stage\": \"decode\", \"codec\": \"%s\", \"batch\": %d, \"seq_len\": %d, \"kv_heads\": %d, "
      "\"group\": %d, \"head_dim\": %d, \"page_rows\": %d, \"status\": \"%s\", \"relative_error\": %.3g, "
      "\"kv_bytes\": %.0f, \"buffers\": %d, \"cold_us\": %.3f, \"steady_us\": %.3f, "
      "\"share_of_ceiling\": %.4f}\n",
      codec.name.c_str(), p.batch, p.seq_len, p.kv_heads, p.group, p.head_dim, p.page_rows,
      ok ? "ok" : "failed", error == error ? error : -1.0, bytes, static_cast<int>(scenes.size()), cold,
      steady, share);
  std::fflush(stdout);
  return ok;
}

void measure_append(cuda::CudaGpu& gpu, const CodecChoice& codec, const Point& p) {
  std::vector<Scene> scenes = make_scenes(gpu, shape_of(codec, p));
  const auto call = [&](int i) { scenes[static_cast<size_t>(i) % scenes.size()].append(); };
  std::printf(
      "{\"stage\": \"append\", \"codec\": \"%s\", \"batch\": %d, \"kv_heads\": %d, \"head_dim\": %d, "
      "\"rows\": %d, \"status\": \"ok\", \"cold_us\": %.3f, \"steady_us\": %.3f}\n",
      codec.name.c_str(), p.batch, p.kv_heads, p.head_dim, codec.unit_rows(), cold_us(gpu, call),
      steady_us(gpu, scenes.size(), call));
  std::fflush(stdout);
}

// What cutting K and V into items gains over one item a (sequence, kv head), which leaves most of a GPU idle
// where there are few: Flash-Decoding's claim (Dao et al. 2023). Verifies, then times.
bool measure_split(cuda::CudaGpu& gpu, const Point& p) {
  double error = 0.0, us[2] = {};
  bool ok = true;
  for (const bool split : {false, true}) {
    SceneShape shape = shape_of(codec_named("f16"), p);
    shape.split = split;
    std::vector<Scene> scenes = make_scenes(gpu, shape);
    scenes.front().step(Scene::Path::kOneLaunch);
    gpu.synchronize();
    error = scenes.front().relative_error(0);
    ok = ok && error <= 5e-6;
    us[split] = steady_us(gpu, scenes.size(), [&](int i) {
      scenes[static_cast<size_t>(i) % scenes.size()].step(Scene::Path::kOneLaunch);
    });
  }
  std::printf(
      "{\"stage\": \"split\", \"name\": \"split-KV, 1 x %d\", \"codec\": \"f16\", \"batch\": %d, "
      "\"seq_len\": %d, \"kv_heads\": %d, \"group\": %d, \"head_dim\": %d, \"status\": \"%s\", "
      "\"relative_error\": %.3g, "
      "\"whole_us\": %.3f, \"split_us\": %.3f, \"speedup\": %.3f}\n",
      p.seq_len, p.batch, p.seq_len, p.kv_heads, p.group, p.head_dim, ok ? "ok" : "failed",
      error == error ? error : -1.0, us[0], us[1], us[0] / us[1]);
  std::fflush(stdout);
  return ok;
}

// A chunk of a prompt: tokens that attend over all rows before them.
bool measure_prefill(cuda::CudaGpu& gpu, const CodecChoice& codec, const Point& p, int32_t tokens) {
  SceneShape shape = shape_of(codec, p);
  shape.tokens = tokens;
  Scene scene(gpu, writer(gpu), shape, 1);
  if (!scene.is_fast()) return true;
  scene.step(Scene::Path::kOneLaunch);
  gpu.synchronize();
  const double error = scene.relative_error(0);
  const bool ok = error <= 5e-6;
  const auto call = [&](int) { scene.step(Scene::Path::kOneLaunch); };
  const double us = ok ? steady_us(gpu, 1, call) : 0.0;
  // Two products, of as many rows as a token sees on average.
  const double seen = p.seq_len - 0.5 * (tokens - 1);
  const double flops = 4.0 * seen * p.head_dim * shape.queries() * p.kv_heads * p.batch;
  std::printf(
      "{\"stage\": \"prefill\", \"codec\": \"%s\", \"batch\": %d, \"seq_len\": %d, \"tokens\": %d, "
      "\"kv_heads\": %d, "
      "\"group\": %d, \"head_dim\": %d, \"status\": \"%s\", \"relative_error\": %.3g, \"steady_us\": %.3f, "
      "\"tflop_s\": %.2f}\n",
      codec.name.c_str(), p.batch, p.seq_len, tokens, p.kv_heads, p.group, p.head_dim, ok ? "ok" : "failed",
      error == error ? error : -1.0, us, ok ? flops / us * 1e-6 : 0.0);
  std::fflush(stdout);
  return ok;
}

// The codecs that the targets are about first, so that a run that is cut off has them.
std::vector<std::string> decode_order() {
  return {"f16",  "fp8",  "token8", "kivi4", "kivi2",  "token4",
          "q8_0", "q4_0", "bf16",   "kivi8", "token2", "f32"};
}

// Cases in order, for as long as there is time; what is not reached is said.
class Cases {
 public:
  explicit Cases(double seconds) : end_(Clock::now() + std::chrono::duration<double>(seconds)) {}
  void run(const std::function<bool()>& one) {
    if (Clock::now() >= end_) {
      ++missed_;
    } else if (!one()) {
      all_right_ = false;
    }
  }
  bool finish() const {
    if (missed_ > 0) {
      std::printf(
          "{\"stage\": \"benchmark\", \"status\": \"cut off\", \"reason\": \"no time for the last %d "
          "cases\"}\n",
          missed_);
    }
    return all_right_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const std::chrono::time_point<Clock, std::chrono::duration<double>> end_;
  int missed_ = 0;
  bool all_right_ = true;
};

// As many sequences, or more, so that K and V have the bytes that the targets are about: far more than any L2.
int large_batch(const CodecChoice& codec, const Point& p) {
  constexpr double kLeastBytes = 256 << 20;
  double row_bytes = 0.0;
  for (const Encoding& e : {codec.k, codec.v}) {
    row_bytes +=
        static_cast<double>(unit_data_bytes(e, p.head_dim) + unit_meta_bytes(e, p.head_dim)) / e.group;
  }
  return std::max(p.batch, static_cast<int>(std::ceil(kLeastBytes / (row_bytes * p.seq_len * p.kv_heads))));
}

}  // namespace

bool benchmark(cuda::CudaGpu& gpu, double seconds) {
  Cases cases(seconds);
  const double ceiling = ceiling_gb_s(gpu, "before");
  for (const int32_t seq_len : {1024, 2048, cuda::kMostItemRows}) {  // which one item can hold
    cases.run([&] { return measure_split(gpu, {1, seq_len, 8, 4, 128, 0}); });
  }
  // Those that the targets are about; where they are larger than what peers are timed with, that follows.
  for (const int32_t page_rows : {0, 16}) {
    for (const std::string& name : decode_order()) {
      const CodecChoice& codec = codec_named(name);
      Point p{32, 4096, 8, 4, 128, page_rows ? std::max(page_rows, codec.unit_rows()) : 0};
      p.batch = large_batch(codec, p);
      cases.run([&] { return measure_decode(gpu, codec, p, ceiling); });
    }
  }
  const Point points[] = {{32, 4096, 8, 4, 128, 0}, {1, 1024, 8, 4, 128, 0},  {1, 32768, 8, 4, 128, 0},
                          {32, 4096, 8, 1, 128, 0}, {16, 4096, 8, 8, 128, 0}, {32, 4096, 8, 4, 64, 0},
                          {16, 4096, 8, 2, 256, 0}, {4, 16384, 8, 4, 128, 0}};
  for (const Point& p : points) {
    for (const std::string& name : decode_order()) {
      const CodecChoice& codec = codec_named(name);
      if (&p == points && large_batch(codec, p) == p.batch) continue;  // above
      cases.run([&] { return measure_decode(gpu, codec, p, ceiling); });
    }
  }
  for (const int batch : {1, 32}) {
    for (const std::string& name : decode_order()) {
      cases.run([&] { return measure_append(gpu, codec_named(name), {batch, 1024, 8, 4, 128, 0}), true; });
    }
  }
  for (const std::string& name : decode_order()) {
    cases.run([&] { return measure_prefill(gpu, codec_named(name), {1, 2048, 2, 4, 128, 0}, 128); });
  }
  ceiling_gb_s(gpu, "after");
  return cases.finish();
}

}  // namespace kv::gpu_check
