// The GPU's plain attention, merge, H2O scores and eviction on the shim, against FP64 and the CPU's kernels.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/attention/evict.h"
#include "tests/kernels/cuda/cuda_attention.h"

namespace kv {
namespace {

using namespace test;

constexpr double kBound = 3e-6;  // f32 arithmetic; both read the same encoded rows

std::vector<GpuProblem> solve(const std::vector<GpuCase>& cases, unsigned seed) {
  std::vector<GpuProblem> problems = make_problems(cases);
  GpuBatch batch(problems);
  batch.attend_simple({.seed = seed});
  batch.merge(seed + 1);
  return problems;
}

void expect_fp64(const std::vector<GpuCase>& cases, unsigned seed) {
  for (const GpuProblem& p : solve(cases, seed)) {
    EXPECT_LT(p.relative_error(), kBound) << describe(p.shape) << " seed " << seed;
  }
}

TEST(CudaAttention, EveryCodecAgreesWithFp64) {
  for (const CodecPair& codec : gpu_codecs()) {
    const int32_t tail = codec.unit_rows() > 1 ? 40 : 0;
    for (const int head_dim : {64, 128, 256}) {
      expect_fp64({{.codec = codec,
                    .head_dim = head_dim,
                    .group = 2,
                    .rows = 64 + tail,
                    .tail_rows = tail,
                    .placing = codec.unit_rows() > 1 ? kTiny : kPaged}},
                  3);
    }
  }
}

TEST(CudaAttention, EveryGroupAndEveryLengthAgreesWithFp64) {
  for (const int group : {1, 2, 3, 4, 8, 16}) {
    expect_fp64({{.codec = same(kF16s), .group = group, .rows = 67}}, 5);
  }
  for (const int32_t rows : {1, 2, 63, 64, 65, 129}) {
    expect_fp64({{.codec = same(kF32s), .rows = rows, .placing = kOdd}}, 7);
  }
}

TEST(CudaAttention, RaggedBatchesAndChunksSeeTheirOwnRowsOnly) {
  const auto of = [](int32_t rows, int32_t n) {
    return GpuCase{.codec = same(kF16s), .group = 2, .rows = rows, .n = n, .placing = kPaged};
  };
  expect_fp64({of(1, 1), of(200, 1), of(65, 1), of(16, 1)}, 9);
  expect_fp64({of(40, 40), of(130, 7), of(70, 1)}, 11);
  expect_fp64({{.codec = kivi(4), .rows = 64 + 45, .tail_rows = 45, .n = 9, .placing = kTiny}}, 13);
}

// Splits are cut by logical rows, so neither pages nor the order of blocks changes a bit.
TEST(CudaAttention, PlacementAndScheduleChangeNoBit) {
  const GpuCase base{.codec = same(kQ8), .group = 2, .rows = 150};
  const std::vector<float> want = solve({base}, 0).front().out;
  for (const Placing& placing : {kContiguous, kRowMajor, kPaged, kTiny, kOdd}) {
    for (const unsigned seed : {1u, 2u}) {
      GpuCase other = base;
      other.placing = placing;
      const std::vector<float> got = solve({other}, seed).front().out;
      EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0) << describe(other);
    }
  }
}

// Compares with the CPU's plain path: its vector kernels round queries and weights to 16 bits for codes.
TEST(CudaAttention, AgreesWithTheCpusKernel) {
  cpu::force_isa("scalar");
  for (const CodecPair& codec : gpu_codecs()) {
    if (codec.unit_rows() > 1) continue;
    GpuProblem p = std::move(solve({{.codec = codec, .group = 4, .rows = 100}}, 3).front());
    const cuda::SideLayout &k = p.encoded.layout.k, &v = p.encoded.layout.v;
    const cuda::Page& page = p.encoded.pages.front();
    const Span span{.k = {page.k, page.k_meta, k.data_bytes, k.meta_bytes, k.encoding},
                    .v = {page.v, page.v_meta, v.data_bytes, v.meta_bytes, v.encoding},
                    .rows = 100};
    std::vector<float> out(p.out.size());
    const HeadQueries problem{
        .q = p.q.data(), .out = out.data(), .spans = {&span, 1}, .group = 4, .n = 1, .visible = 100};
    const Bytes workspace(static_cast<int64_t>(attention_workspace_bytes({&problem, 1}, 64)));
    attend({&problem, 1}, 64, workspace.get());
    double error = 0.0, norm = 0.0;
    for (size_t i = 0; i < out.size(); ++i) {
      error += std::pow(static_cast<double>(out[i]) - static_cast<double>(p.out[i]), 2);
      norm += std::pow(static_cast<double>(out[i]), 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 2 * kBound) << codec.name();
  }
  cpu::force_isa("auto");
}

TEST(CudaScores, AddAttentionWeightsPerRow) {
  std::vector<GpuProblem> problems =
      make_problems({{.codec = same(kF16s), .group = 4, .rows = 150, .placing = kPaged},
                     {.codec = same(kF16s), .group = 4, .rows = 33, .n = 5, .placing = kPaged}});
  problems[0].weights.assign(150, 0.25f);  // weights of earlier steps
  GpuBatch batch(problems, GpuBatch::Path::kSimple, true);
  batch.attend_simple({.seed = 1});
  batch.merge(2);
  batch.add_attention_weights(3);
  for (const GpuProblem& p : problems) {
    std::vector<double> want = p.exact_weights();
    for (double& weight : want) weight += p.shape.rows == 150 ? 0.25 : 0.0;
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(p.weights[i], want[i], 1e-5 * want[i]) << i;
  }
}

int32_t choose(const cuda::EvictParams& params, unsigned seed) {
  simt::Machine::run({.grid = {1},
                      .threads = cuda::kEvictWarps * simt::kWarp,
                      .shared_bytes = cuda::kEvictSharedBytes,
                      .seed = seed},
                     [&] { cuda::choose_slot(params); });
  return *params.slot;
}

TEST(CudaEviction, TakesNewSlotsAndThenTheLightestOfTheOld) {
  constexpr int32_t kBudget = 300, kRecent = 20;
  std::mt19937 random(1);
  for (unsigned seed = 0; seed < 4; ++seed) {
    const bool newest_query = seed % 2 == 1;
    std::vector<int32_t> token(kBudget, -1);
    std::vector<float> score(kBudget, NAN);
    const cuda::ScoredSlots head{token.data(), score.data()};
    int32_t slot = -1;
    for (int32_t count = 0; count < kBudget + 40; ++count) {
      int32_t want = count;
      if (count >= kBudget) {
        want = -1;
        for (int32_t s = 0; s < kBudget; ++s) {
          if (token[s] > count - kRecent) continue;
          const bool smaller =
              want < 0 || score[s] < score[want] || (std::isnan(score[want]) && !std::isnan(score[s]));
          if (smaller) want = s;
        }
      }
      ASSERT_EQ(choose({&head, &slot, kBudget, kRecent, count, newest_query}, seed), want) << count;
      ASSERT_EQ(token[want], count);
      ASSERT_EQ(score[want], 0.0f);
      if (newest_query && count >= kBudget) {
        ASSERT_EQ(score, std::vector<float>(kBudget, 0.0f));
      }
      for (int32_t s = 0; s < std::min(count + 1, kBudget); ++s) {
        score[s] += random() % 64 == 0 ? NAN : static_cast<float>(random() % 4);  // many ties
      }
    }
  }
}

}  // namespace
}  // namespace kv
