// Checks every kernel on the GPU: stored bytes against the CPU's encoders, outputs against FP64.
#include <cstdio>

#include "harness/gpu_check/checks.h"
#include "harness/gpu_check/exact.h"
#include "harness/gpu_check/heavy_hitters.h"
#include "harness/gpu_check/numbers.h"

namespace kv::gpu_check {
namespace {

__global__ void write_numbers(float* to, int64_t n, uint64_t seed, int64_t first) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) to[i] = normal_number(seed, first + i);
}

struct Case {
  SceneShape shape;
  Scene::Path path;
};

constexpr const char* kPaths[] = {"", " two launches", " plain"};

std::string describe(const Case& c) {
  return c.shape.codec.name + kPaths[static_cast<int>(c.path)] + " d" + std::to_string(c.shape.head_dim) +
         " g" + std::to_string(c.shape.group) +
         (c.shape.tokens > 1 ? " chunk of " + std::to_string(c.shape.tokens) : "") +
         (c.shape.page_rows ? " paged" : " contiguous");
}

// Blocks of a smaller GPU may have too little shared memory.
bool skipped(const std::string& name) {
  std::printf("{\"stage\": \"kernels\", \"name\": \"%s\", \"status\": \"unsupported\"}\n", name.c_str());
  return true;
}

bool passes(cuda::CudaGpu& gpu, const Case& c) {
  Scene scene(gpu, writer(gpu), c.shape, 17);
  if (c.path != Scene::Path::kPlain && !scene.is_fast()) return skipped(describe(c));
  scene.step(c.path);
  gpu.synchronize();
  double error = 0.0;
  bool bytes = true;
  for (int problem = 0; problem < scene.problems(); ++problem) {
    const double one = scene.relative_error(problem);
    error = one <= error ? error : one;  // NaN stays
    bytes &= scene.bytes_are_the_cpus(problem);
    if (c.path == Scene::Path::kPlain) bytes &= scene.copy_is_the_cpus(problem);
  }
  const bool ok = bytes && error <= kBound;
  std::printf(
      "{\"stage\": \"kernels\", \"name\": \"%s\", \"status\": \"%s\", \"relative_error\": %.3g, "
      "\"bytes_are_the_cpus\": %s}\n",
      describe(c).c_str(), ok ? "ok" : "failed", error == error ? error : -1.0, bytes ? "true" : "false");
  std::fflush(stdout);
  return ok;
}

bool heavy_hitters_pass(cuda::CudaGpu& gpu, const HeavyHitterShape& shape, int steps) {
  HeavyHitters scene(gpu, writer(gpu), shape, 17);
  std::string wrong;
  for (int i = 0; i < steps && wrong.empty(); ++i) wrong = scene.checked_step();
  std::printf(
      "{\"stage\": \"kernels\", \"name\": \"h2o f16 d%d g%d\", \"status\": \"%s\", \"reason\": \"%s\"}\n",
      shape.head_dim, shape.group, wrong.empty() ? "ok" : "failed", wrong.c_str());
  std::fflush(stdout);
  return wrong.empty();
}

}  // namespace

WriteNumbers writer(const cuda::CudaGpu& gpu) {
  return [stream = gpu.stream()](float* to, int64_t n, uint64_t seed, int64_t first) {
    write_numbers<<<static_cast<unsigned>((n + 255) / 256), 256, 0, stream>>>(to, n, seed, first);
    KV_CHECK(cudaGetLastError());
  };
}

bool check_kernels(cuda::CudaGpu& gpu, bool small) {
  bool all = heavy_hitters_pass(gpu, {}, small ? 100 : 300);
  const int32_t most = small ? 192 : 1536;
  for (const CodecChoice& codec : codecs()) {
    const bool grouped = codec.unit_rows() > 1;
    for (const int head_dim : {64, 128, 256}) {
      if (small && head_dim != 128) continue;
      for (const int group : {1, 4, 16}) {
        if (small && group != 4) continue;
        for (const int32_t page_rows : {0, grouped ? 32 : 16}) {
          const int32_t tail = grouped ? 57 : 0;
          const SceneShape shape{codec, head_dim, 2, group, {most + tail, 32 + tail, 96 + tail},
                                 tail,  page_rows};
          all &= passes(gpu, {shape, Scene::Path::kOneLaunch});
          if (head_dim != 128 || group != 4) continue;
          for (const int32_t tokens : {8, 24}) {  // of several blocks of decode.h, and of chunk.h
            SceneShape chunk = shape;
            chunk.tokens = tokens;
            all &= passes(gpu, {chunk, Scene::Path::kOneLaunch});
          }
          all &= passes(gpu, {shape, Scene::Path::kTwoLaunches});
          all &= passes(gpu, {shape, Scene::Path::kPlain});
        }
      }
    }
  }
  return all;
}

}  // namespace kv::gpu_check
