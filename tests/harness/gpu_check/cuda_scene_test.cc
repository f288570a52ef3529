// gpu-check's problems and checks on the shim: they must pass where the kernels are right and fail where they are not.
#include "harness/gpu_check/problem.h"

#include <gtest/gtest.h>

#include "harness/gpu_check/choices.h"
#include "harness/gpu_check/codecs.h"
#include "harness/gpu_check/numbers.h"
#include "tests/kernels/cuda/simt_gpu.h"

namespace kv {
namespace {

using namespace gpu_check;

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

std::vector<GpuProblem> heads_of(const CodecPair& codec, const std::vector<int32_t>& rows, int32_t tail = 0,
                                 int32_t n = 1) {
  std::vector<GpuProblem> heads;
  for (const int32_t each : rows)
    heads.emplace_back(GpuCase{codec, 64, 4, each + tail, tail, n, {codec.unit_rows() > 1 ? 1 : 16, true}},
                       heads.size());
  return heads;
}

TEST(GpuCheck, EveryCodecsProblemsAreRightOnEveryPath) {
  test::SimtGpu gpu;
  for (const CodecChoice& choice : codecs()) {
    const int32_t tail = choice.codec.unit_rows() > 1 ? 57 : 0;
    std::vector<GpuProblem> heads = heads_of(choice.codec, {96, 32}, tail);
    for (const auto& [cut, merges] : {std::pair{AttentionPlan::Cut::kEven, true},
                                      {AttentionPlan::Cut::kEven, false},
                                      {AttentionPlan::Cut::kPlain, true}}) {
      GpuBatch batch(gpu, heads, {.cut = cut, .scored = !merges || cut == AttentionPlan::Cut::kPlain});
      batch.step(merges);
      batch.fetch();
      for (const GpuProblem& head : heads) {
        EXPECT_LT(head.relative_error(), 3e-6) << choice.name;
        EXPECT_LT(head.weights.empty() ? 0.0 : head.weight_error(), 3e-6) << choice.name;
      }
      EXPECT_TRUE(batch.copy_is_the_cpus(1)) << choice.name;
    }
  }
}

// The shim's clock counts launches.
TEST(GpuCheck, KivisRawRowsComeInTheLaunchOfItsGroups) {
  test::SimtGpu gpu;
  const auto launches = [&](const char* codec, int32_t tail, bool merges) {
    std::vector<GpuProblem> heads = heads_of(codec_named(codec), {96}, tail);
    const GpuBatch batch(gpu, heads, {});
    return gpu.time_us(cuda::Gpu::Timed::kGraph, [&] { batch.step(merges); });
  };
  EXPECT_EQ(launches("kivi4", 57, true), 1.0);
  EXPECT_EQ(launches("kivi2", 57, false), 2.0);  // and the merge
  EXPECT_EQ(launches("q8_0", 57, true), 2.0);    // raw rows apart
  EXPECT_EQ(launches("q8_0", 0, true), 1.0);
}

TEST(GpuCheck, WholeItemsAndChunksAttendToTheSame) {
  test::SimtGpu gpu;
  for (const int32_t n : {1, 5}) {
    for (const auto cut :
         {AttentionPlan::Cut::kEven, AttentionPlan::Cut::kWhole, AttentionPlan::Cut::kPlain}) {
      std::vector<GpuProblem> heads = heads_of(codec_named("f16"), {700, 17}, 0, n);
      GpuBatch batch(gpu, heads, {.cut = cut});
      batch.step();
      batch.fetch();
      for (const GpuProblem& head : heads) EXPECT_LT(head.relative_error(), 3e-6) << n;
    }
  }
}

TEST(GpuCheck, SeesBytesThatAreNotTheCpus) {
  struct Wrong : test::SimtGpu {
    void append(const cuda::AppendParams& params, int jobs, int most_units) override {
      SimtGpu::append(params, jobs, most_units);
      synchronize();
      *params.jobs->pages[1].k ^= std::byte{1};
    }
  } gpu;
  const std::vector<GpuProblem> heads = heads_of(codec_named("f16"), {40});
  const GpuCase& c = heads[0].shape;
  EXPECT_EQ(
      append_difference(gpu, c.codec, c.head_dim, c.placing, heads[0].given(false), heads[0].given(true)),
      "K's codes of row 16");
}

TEST(GpuCheck, SeesAWrongOutput) {
  test::SimtGpu gpu;
  std::vector<GpuProblem> heads = heads_of(codec_named("f16"), {40});
  GpuBatch batch(gpu, heads, {});
  batch.fetch();
  EXPECT_FALSE(heads[0].relative_error() <= 1e-3);  // no step has written outputs yet
  batch.step();
  batch.fetch();
  EXPECT_LT(heads[0].relative_error(), 3e-6);
  heads[0].out[7] += 0.01f;
  EXPECT_GT(heads[0].relative_error(), kBound);
}

TEST(GpuCheck, ChoicesTakeNewSlotsAndThenTheLightestOfTheOld) {
  test::SimtGpu gpu;
  for (uint64_t seed = 0; seed < 4; ++seed) EXPECT_EQ(gpu_check::wrong_choice(gpu, seed % 2 == 1, seed), "");
}

}  // namespace
}  // namespace kv
