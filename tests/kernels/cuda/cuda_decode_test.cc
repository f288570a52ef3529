// The GPU's fast decode kernel on the shim: every instance that is compiled for the GPU, against FP64.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/cuda/cuda_attention.h"

namespace kv {
namespace {

using namespace test;

// Every head_dim, one query head and several, and lengths around tiles and splits.
void check_list(GpuBatch::Find find, const std::vector<CodecPair>& codecs) {
  for (const CodecPair& codec : codecs) {
    const int32_t unit = codec.unit_rows();
    for (const int head_dim : {64, 128, 256}) {
      const auto of = [&](int group, int32_t units, int32_t tail) {
        return GpuCase{.codec = codec,
                       .head_dim = head_dim,
                       .group = group,
                       .rows = units * unit + tail,
                       .tail_rows = tail,
                       .placing = unit > 1 ? kTiny : kPaged};
      };
      const int32_t most = 384 / unit;
      if (unit > 1) {
        expect_fp64(find, {of(1, most, 33), of(1, 1, 0), of(1, 0, 7)}, 1);
        expect_fp64(find, {of(4, 2, 40)}, 2);
      } else {
        expect_fp64(find, {of(1, most, 0), of(1, 1, 0), of(1, 37, 0)}, 1);
        expect_fp64(find, {of(4, 70, 0)}, 2);
      }
      // A GPU with 100 KiB of shared memory takes the same rows, with a stage less where it must.
      if (head_dim == 256) expect_fp64(find, {of(4, 3, unit > 1 ? 9 : 0)}, 3, 99 << 10);
    }
  }
}

TEST(CudaDecode, PlainCodecsAgreeWithFp64) {
  check_list(cuda::find_plain, {same(kF32s), same(kF16s), same(kBf16s)});
}
TEST(CudaDecode, Fp8AgreesWithFp64) { check_list(cuda::find_fp8, {same(kFp8s[0]), same(kFp8s[1])}); }
TEST(CudaDecode, GgmlBlocksAgreeWithFp64) {
  check_list(cuda::find_block, {same(kQ8), same(kQ4), {kQ8, kQ4}});
}
TEST(CudaDecode, TokenCodesAgreeWithFp64) {
  check_list(cuda::find_token, {same(token(8, true)), same(token(4, true)), same(token(2, true))});
}
TEST(CudaDecode, SymmetricTokenCodesAgreeWithFp64) {
  check_list(cuda::find_symmetric, {same(token(8, false)), same(token(4, false)), same(token(2, false))});
}
TEST(CudaDecode, KiviAgreesWithFp64) { check_list(cuda::find_kivi, {kivi(8), kivi(4), kivi(2)}); }

TEST(CudaDecode, EveryGroupAgreesWithFp64) {
  for (int group = 1; group <= 16; ++group) {
    expect_fp64(cuda::find_plain, {{.codec = same(kF16s), .group = group, .rows = 75}}, 5);
  }
}

// Several blocks of 8 and of 16 queries, and tokens that see different rows. More queries are chunk.h's.
TEST(CudaDecode, ChunksAgreeWithFp64) {
  const auto of = [](const CodecPair& codec, int32_t rows, int32_t n) {
    return GpuCase{.codec = codec, .group = 2, .rows = rows, .n = n, .placing = kPaged};
  };
  for (const CodecPair& codec : {same(kF32s), same(kF16s), same(kBf16s)}) {
    expect_fp64(cuda::find_plain, {of(codec, 3, 3), of(codec, 20, 3)}, 3);
    expect_fp64(cuda::find_plain, {of(codec, 31, 31), of(codec, 400, 7), of(codec, 70, 1)}, 4);
  }
  expect_fp64(cuda::find_block, {of(same(kQ4), 31, 31), of(same(kQ4), 130, 9)}, 5);
  expect_fp64(cuda::find_kivi,
              {{.codec = kivi(4), .group = 2, .rows = 64 + 45, .tail_rows = 45, .n = 9, .placing = kTiny},
               {.codec = kivi(4), .group = 2, .rows = 32 + 5, .tail_rows = 5, .n = 20, .placing = kTiny}},
              6);
  expect_fp64(cuda::find_plain, {{.codec = same(kF16s), .head_dim = 256, .rows = 50, .n = 20}}, 7);
}

// Large and small numbers: a tensor core's operands have 5 bits of exponent.
TEST(CudaDecode, EveryMagnitudeAgreesWithFp64) {
  for (const CodecPair& codec : {same(token(4, true)), same(kQ8), same(kFp8s[0])}) {
    for (const float magnitude : {1e-12f, 1e-3f, 1e6f}) {
      if (codec.k.format == Format::kQ8_0 && magnitude < 1e-6f) continue;  // its f16 scales would all be 0
      std::vector<GpuProblem> problems = make_problems({{.codec = codec, .group = 2, .rows = 200}});
      GpuProblem& p = problems.front();
      std::vector<float> k = gaussian(200 * 64, 5), v = gaussian(200 * 64, 6);
      for (size_t i = 0; i < v.size(); ++i) v[i] *= i / 64 % 3 ? magnitude : 1e-3f * magnitude;
      for (float& x : k) x *= std::min(magnitude, 30.0f);
      for (float& x : p.q) x /= std::min(magnitude, 30.0f);
      p.encoded.fill(k, v);
      GpuBatch batch(problems, GpuBatch::Path::kFast);
      const bool found = codec.k.format == Format::kToken  ? batch.decode(cuda::find_token, {.seed = 1})
                         : codec.k.format == Format::kQ8_0 ? batch.decode(cuda::find_block, {.seed = 1})
                                                           : batch.decode(cuda::find_fp8, {.seed = 1});
      ASSERT_TRUE(found);
      EXPECT_LT(p.relative_error(), kBound) << codec.name() << " " << magnitude;
    }
  }
}

// Channels of K differ by a factor of up to a thousand, and the queries by its inverse.
TEST(CudaDecode, KiviOfUnequalChannelsAgreesWithFp64) {
  for (const int bits : {8, 4, 2}) {
    for (const float least : {1e-4f, 1.0f}) {
      std::vector<GpuProblem> problems = make_problems({{.codec = kivi(bits), .group = 2, .rows = 192}});
      GpuProblem& p = problems.front();
      const auto of_channel = [&](size_t i) {
        return least * std::pow(10.0f, static_cast<float>(i % 64 % 4));
      };
      std::vector<float> k = gaussian(192 * 64, 5);
      for (size_t i = 0; i < k.size(); ++i) k[i] *= of_channel(i);
      for (size_t i = 0; i < p.q.size(); ++i) p.q[i] /= of_channel(i);
      p.encoded.fill(k, gaussian(192 * 64, 6));
      GpuBatch batch(problems, GpuBatch::Path::kFast);
      ASSERT_TRUE(batch.decode(cuda::find_kivi, {.seed = 1}));
      EXPECT_LT(p.relative_error(), kBound) << bits << " " << least;
    }
  }
}

TEST(CudaDecode, KiviRowsThatNobodySeesMayBeAnything) {
  expect_unseen_kivi_rows_are_nothing({.head_dim = 128, .rows = 192});
}

// Scores grow from tile to tile, as do scales of V, and the maximum follows them.
TEST(CudaDecode, GrowingScoresAndScalesAgreeWithFp64) {
  constexpr size_t kRows = 352, kHeadDim = 64;
  const auto check = [&](GpuBatch::Find find, const Encoding& encoding) {
    std::vector<GpuProblem> problems =
        make_problems({{.codec = same(encoding), .group = 8, .rows = static_cast<int32_t>(kRows)}});
    std::vector<float> k = gaussian(kRows * kHeadDim, 5), v = gaussian(kRows * kHeadDim, 6);
    for (size_t i = 0; i < k.size(); ++i) {
      const auto row = static_cast<float>(i / kHeadDim);
      k[i] *= 1.0f + row / 128.0f;
      v[i] *= std::exp2(row / 16.0f);
    }
    problems.front().encoded.fill(k, v);
    GpuBatch batch(problems, GpuBatch::Path::kFast);
    ASSERT_TRUE(batch.decode(find, {.seed = 1}));
    EXPECT_LT(problems.front().relative_error(), kBound) << encoding_name(encoding);
  };
  check(cuda::find_token, token(2, true));
  check(cuda::find_symmetric, token(8, false));
  check(cuda::find_block, kQ4);
}

// Tensor cores truncate their sums, and the errors add up over rows, so the plan limits an item's rows even if the GPU is busy
// without splits. The bound is gpu-check's.
TEST(CudaDecode, TheLongestItemsKeepTheErrorThatIsDemanded) {
  constexpr int32_t kRows = 65536;
  for (const CodecPair& codec : {same(kF16s), same(token(8, true))}) {
    const auto error = [&](int32_t item_rows) {
      std::vector<GpuProblem> problems = make_problems({{.codec = codec, .rows = kRows}});
      GpuBatch batch(problems, GpuBatch::Path::kFast, false, item_rows);
      EXPECT_TRUE(codec.k.format == Format::kF16 ? batch.decode(cuda::find_plain, {.seed = 1})
                                                 : batch.decode(cuda::find_token, {.seed = 1}));
      return problems.front().relative_error();
    };
    const double cut = error(cuda::kMostItemRows), whole = error(kRows);
    EXPECT_LT(cut, 5e-6) << codec.name();
    EXPECT_GT(whole, 5e-6) << codec.name() << ": then items need no limit";
    std::printf("%s: error %.2g in items as planned, %.2g in one\n", codec.name().c_str(), cut, whole);
  }
}

// The last block merges. For every order of blocks the bits equal those of a launch that only merges.
TEST(CudaDecode, OneLaunchAndTwoGiveTheSameBits) {
  const GpuCase shape{.codec = kivi(4), .group = 3, .rows = 1088 + 40, .tail_rows = 40, .placing = kTiny};
  std::vector<GpuProblem> want = make_problems({shape, shape});
  GpuBatch two(want, GpuBatch::Path::kFast);
  ASSERT_TRUE(two.decode(cuda::find_kivi, {.seed = 1}, false));
  two.merge(2);
  for (const unsigned seed : {0u, 3u, 4u}) {
    const std::vector<GpuProblem> got = solve(cuda::find_kivi, {shape, shape}, seed);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(std::memcmp(want[i].out.data(), got[i].out.data(), want[i].out.size() * sizeof(float)), 0);
    }
  }
}

TEST(CudaDecode, PlacementAndScheduleChangeNoBit) {
  const GpuCase base{.codec = same(kQ8), .group = 2, .rows = 400};
  const std::vector<float> want = solve(cuda::find_block, {base}, 0).front().out;
  for (const Placing& placing : {kContiguous, kRowMajor, kPaged, kTiny, kOdd}) {
    GpuCase other = base;
    other.placing = placing;
    for (const unsigned seed : {1u, 2u}) {
      const std::vector<float> got = solve(cuda::find_block, {other}, seed).front().out;
      EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0) << describe(other);
    }
  }
}

TEST(CudaDecode, KeepsTheScoresThatH2oAsksFor) {
  std::vector<GpuProblem> problems =
      make_problems({{.codec = kivi(4), .group = 3, .rows = 64 + 20, .tail_rows = 20, .placing = kTiny}});
  GpuBatch batch(problems, GpuBatch::Path::kFast, true);
  ASSERT_TRUE(batch.decode(cuda::find_kivi, {.seed = 1}));
  batch.add_attention_weights(3);
  const GpuProblem& p = problems.front();
  const std::vector<double> want = p.exact_weights();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(p.weights[i], want[i], 1e-5 * want[i]) << i;
}

}  // namespace
}  // namespace kv
