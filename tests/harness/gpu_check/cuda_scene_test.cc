// gpu-check's scenes and checks on the shim: they must pass where the kernels are right and fail where they are not.
#include "harness/gpu_check/scene.h"

#include <gtest/gtest.h>

#include "harness/gpu_check/heavy_hitters.h"
#include "harness/gpu_check/numbers.h"
#include "tests/kernels/cuda/simt_gpu.h"

namespace kv {
namespace {

using gpu_check::Scene;
using gpu_check::SceneShape;

void write_numbers(float* to, int64_t n, uint64_t seed, int64_t first) {
  for (int64_t i = 0; i < n; ++i) to[i] = gpu_check::normal_number(seed, first + i);
}

TEST(GpuCheck, NumbersLookNormal) {
  double sum = 0.0, squares = 0.0;
  for (int64_t i = 0; i < 100000; ++i) {
    const double x = double{gpu_check::normal_number(5, i)};
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 1e5, 0.0, 0.01);
  EXPECT_NEAR(squares / 1e5, 1.0, 0.02);
  EXPECT_NE(gpu_check::normal_number(5, 1), gpu_check::normal_number(6, 1));
}

TEST(GpuCheck, EveryCodecsSceneIsRightOnBothPaths) {
  test::SimtGpu gpu;
  for (const gpu_check::CodecChoice& codec : gpu_check::codecs()) {
    const int32_t tail = codec.unit_rows() > 1 ? 57 : 0;
    const SceneShape shape{codec, 64, 2, 4, {96 + tail, 32 + tail}, tail, codec.unit_rows() > 1 ? 32 : 16};
    Scene scene(gpu, write_numbers, shape, 17);
    for (const Scene::Path path : {Scene::Path::kOneLaunch, Scene::Path::kTwoLaunches, Scene::Path::kPlain}) {
      scene.step(path);
      for (int problem = 0; problem < scene.problems(); ++problem) {
        EXPECT_LT(scene.relative_error(problem), 3e-6) << codec.name << " path " << static_cast<int>(path);
      }
    }
    EXPECT_TRUE(scene.bytes_are_the_cpus(3)) << codec.name;
    EXPECT_TRUE(scene.copy_is_the_cpus(3)) << codec.name;
  }
}

// The shim's clock counts launches.
TEST(GpuCheck, KivisRawRowsComeInTheLaunchOfItsGroups) {
  test::SimtGpu gpu;
  const auto launches = [&](const char* codec, int32_t tail, Scene::Path path) {
    Scene scene(gpu, write_numbers, {gpu_check::codec_named(codec), 64, 1, 4, {96 + tail}, tail, 32}, 17);
    return gpu.time_us(cuda::Gpu::Timed::kGraph, [&] { scene.step(path); });
  };
  EXPECT_EQ(launches("kivi4", 57, Scene::Path::kOneLaunch), 1.0);
  EXPECT_EQ(launches("kivi2", 57, Scene::Path::kTwoLaunches), 2.0);  // and the merge
  EXPECT_EQ(launches("q8_0", 57, Scene::Path::kOneLaunch), 2.0);     // raw rows apart
  EXPECT_EQ(launches("q8_0", 0, Scene::Path::kOneLaunch), 1.0);
}

TEST(GpuCheck, WholeItemsAttendToTheSame) {
  test::SimtGpu gpu;
  SceneShape shape{gpu_check::codec_named("f16"), 64, 1, 4, {700, 90}, 0, 0};
  for (const bool split : {true, false}) {
    shape.split = split;
    Scene scene(gpu, write_numbers, shape, 17);
    scene.step(Scene::Path::kOneLaunch);
    for (int problem = 0; problem < scene.problems(); ++problem)
      EXPECT_LT(scene.relative_error(problem), 3e-6) << split;
  }
}

TEST(GpuCheck, ChunksAreComparedWithTheRowsThatEachTokenSees) {
  test::SimtGpu gpu;
  SceneShape shape{gpu_check::codec_named("f16"), 64, 1, 2, {40, 17}, 0, 16};
  shape.tokens = 5;
  Scene scene(gpu, write_numbers, shape, 17);
  for (const Scene::Path path : {Scene::Path::kOneLaunch, Scene::Path::kPlain}) {
    scene.step(path);
    for (int problem = 0; problem < 2; ++problem) EXPECT_LT(scene.relative_error(problem), 3e-6);
  }
}

// One number of one row is wrong on the GPU.
TEST(GpuCheck, SeesBytesThatAreNotTheCpus) {
  test::SimtGpu gpu;
  const auto write_wrongly = [](float* to, int64_t n, uint64_t seed, int64_t first) {
    write_numbers(to, n, seed, first);
    if (first == 0) to[n / 2 - 1] += 1.0f;  // K's last
  };
  Scene scene(gpu, write_wrongly, {gpu_check::codec_named("f16"), 64, 1, 1, {40}, 0, 0}, 17);
  EXPECT_FALSE(scene.bytes_are_the_cpus(0));
  scene.step(Scene::Path::kOneLaunch);
  EXPECT_LT(scene.relative_error(0), 3e-6);  // compared with the stored bytes
}

TEST(GpuCheck, SeesAWrongOutput) {
  test::SimtGpu gpu;
  Scene scene(gpu, write_numbers, {gpu_check::codec_named("f16"), 64, 1, 1, {40}, 0, 0}, 23);
  EXPECT_FALSE(scene.relative_error(0) <= 1e-3);  // no step has written outputs yet
  scene.step(Scene::Path::kOneLaunch);
  EXPECT_LT(scene.relative_error(0), 3e-6);
}

TEST(GpuCheck, HeavyHittersStayOnTheGpu) {
  test::SimtGpu gpu;
  gpu_check::HeavyHitters scene(gpu, write_numbers, {2, 3, 64, 24, 8}, 17);
  for (int step = 0; step < 50; ++step) ASSERT_EQ(scene.checked_step(), "") << step;
}

}  // namespace
}  // namespace kv
