// The GPU's kernel of chunks on the shim: every instance that is compiled for the GPU, against FP64, and the bytes that it reads.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/cuda/cuda_attention.h"
#include "tests/kernels/cuda/simt_gpu.h"
#include "variants/storage/attention_plan.h"

namespace kv {
namespace {

using namespace test;

int block_queries(GpuBatch::Find find, const GpuCase& c, int most_shared_bytes = kHopperBytes) {
  return find(layout_of(c.codec, c.head_dim, c.placing), c.group * c.n, most_shared_bytes).queries;
}

// Every head_dim, group and a chunk that fills no whole number of blocks: the first of a prompt, and one behind other rows.
void check_list(GpuBatch::Find find, const std::vector<CodecPair>& codecs) {
  for (const CodecPair& codec : codecs) {
    for (const int head_dim : {64, 128, 256}) {
      const bool grouped = codec.unit_rows() > 1;
      const auto of = [&](int group, int32_t n, int32_t before) {
        GpuCase c{.codec = codec, .head_dim = head_dim, .group = group, .rows = n + before, .n = n};
        c.tail_rows = grouped ? c.rows % 32 + 32 * (c.rows >= 64) : 0;
        c.placing = grouped ? kTiny : kPaged;
        return c;
      };
      for (const auto& [group, n] : {std::pair{1, 65}, {4, 33}, {7, 11}}) {
        const GpuCase first = of(group, n, 0), later = of(group, n, 83);
        for (const int bytes : {kHopperBytes, 99 << 10}) {
          EXPECT_EQ(block_queries(find, first, bytes), head_dim == 256 ? 32 : 64) << describe(first);
        }
        expect_fp64(find, {first, later, of(group, 1, 20)}, 1);
      }
    }
  }
}

TEST(CudaChunk, PlainCodecsAgreeWithFp64) { check_list(cuda::find_plain, {same(kF16s), same(kBf16s)}); }
TEST(CudaChunk, Fp8AgreesWithFp64) { check_list(cuda::find_fp8, {same(kFp8s[0]), same(kFp8s[1])}); }
TEST(CudaChunk, GgmlBlocksAgreeWithFp64) { check_list(cuda::find_block, {same(kQ8), same(kQ4), {kQ8, kQ4}}); }
TEST(CudaChunk, TokenCodesAgreeWithFp64) {
  check_list(cuda::find_token, {same(token(8, true)), same(token(4, true)), same(token(2, true))});
}
TEST(CudaChunk, SymmetricTokenCodesAgreeWithFp64) {
  check_list(cuda::find_symmetric, {same(token(8, false)), same(token(4, false)), same(token(2, false))});
}
TEST(CudaChunk, KiviAgreesWithFp64) { check_list(cuda::find_kivi, {kivi(8), kivi(4), kivi(2)}); }

// Fewer queries than a block has would leave warps idle.
TEST(CudaChunk, TakesFromABlocksQueriesOn) {
  const auto of = [](int32_t n) { return GpuCase{.codec = same(kF16s), .rows = n, .n = n}; };
  EXPECT_EQ(block_queries(cuda::find_plain, of(63)), 16);
  EXPECT_EQ(block_queries(cuda::find_plain, of(64)), 64);
}

// Items of 64 rows: the first blocks of a prompt see no row of most of them.
TEST(CudaChunk, ItemsThatABlockDoesNotSeeCountForNothing) {
  for (const int32_t n : {31, 150}) {  // decode.h's blocks, chunk.h's
    std::vector<GpuProblem> problems = make_problems({{.codec = same(kF16s), .group = 2, .rows = n, .n = n}});
    GpuBatch batch(problems, GpuBatch::Path::kFast, false, n > 64 ? 64 : 16);
    ASSERT_TRUE(batch.decode(cuda::find_plain, {.seed = 1}));
    EXPECT_LT(problems.front().relative_error(), kBound) << n;
  }
}

// The bytes of all tiles of 16 rows up to the last that a block's queries see, once a block.
TEST(CudaChunk, ABlockReadsOnceWhatItsOwnTokensSee) {
  struct Count {
    int group;
    int32_t n, before;
    int block;
    int64_t tiles;
  };
  // 8 blocks a head of 4, 8, ... 32 tiles; 2 behind 64 tiles; a block of two heads; and decode.h's of 16 queries.
  for (const Count& c : {Count{4, 512, 0, 64, 4 * 144},
                         {4, 128, 1024, 64, 4 * (68 + 72)},
                         {2, 32, 0, 64, 2},
                         {1, 32, 0, 16, 1 + 2}}) {
    std::vector<GpuProblem> problems =
        make_problems({{.codec = same(kF16s), .group = c.group, .rows = c.n + c.before, .n = c.n}});
    ASSERT_EQ(block_queries(cuda::find_plain, problems.front().shape), c.block);
    GpuBatch batch(problems, GpuBatch::Path::kFast, false, 4096);
    int64_t bytes = 0;
    ASSERT_TRUE(batch.decode(cuda::find_plain, {.seed = 1, .copied_bytes = &bytes}));
    constexpr int64_t kTileBytes = 16 * 2 * 64 * 2;
    EXPECT_EQ(bytes, c.tiles * kTileBytes) << c.n;
    const int64_t blocks_of_16 = c.group * c.n / 16, all_rows = (c.n + c.before + 15) / 16;
    std::printf("%d tokens behind %d: %lld tiles; blocks of 16 queries over all rows: %lld\n", c.n, c.before,
                static_cast<long long>(bytes / kTileBytes), static_cast<long long>(blocks_of_16 * all_rows));
  }
}

TEST(CudaChunk, KiviRowsThatNobodySeesMayBeAnything) {
  expect_unseen_kivi_rows_are_nothing({.head_dim = 128, .group = 2, .rows = 192, .n = 40});
}

// A warp adds all of an item's rows, four times as many as one of decode.h's. The bound is gpu-check's.
TEST(CudaChunk, TheLongestItemsKeepTheErrorThatIsDemanded) {
  const GpuCase shape{.codec = same(token(8, true)), .rows = 8192, .n = 64};
  const auto find = [&](int queries) {
    return cuda::find_token(layout_of(shape.codec, 64, shape.placing), queries, kHopperBytes);
  };
  const auto error = [&](int32_t item_rows) {
    std::vector<GpuProblem> problems = make_problems({shape});
    GpuBatch batch(problems, GpuBatch::Path::kFast, false, item_rows);
    EXPECT_TRUE(batch.decode(cuda::find_token, {.seed = 1}));
    return problems.front().relative_error();
  };
  const double cut = error(find(64).most_item_rows), as_decode = error(find(1).most_item_rows);
  EXPECT_LT(cut, 5e-6);
  EXPECT_GT(as_decode, 5e-6) << "then items need no limit of their own";
  std::printf("error %.2g in items as planned, %.2g in those of a step\n", cut, as_decode);
}

TEST(CudaChunk, ThePlansItemsKeepToTheirLength) {
  const SimtGpu gpu;
  for (const auto& [tokens, most] : {std::pair{1, 4096}, {64, 1024}}) {
    for (const auto how : {AttentionPlan::Cut::kEven, AttentionPlan::Cut::kWhole}) {
      AttentionPlan plan;
      plan.layout = layout_of(same(kF16s), 64, kContiguous);
      plan.head_dim = 64;
      plan.problems.resize(16, {.rows = 8192, .n = tokens, .visible = 8192 - tokens + 1});
      plan.cut(gpu, how);
      int32_t longest = 0;
      for (const cuda::WorkItem& item : plan.items[0]) longest = std::max(longest, item.end - item.begin);
      EXPECT_LE(longest, most) << tokens;
      if (how == AttentionPlan::Cut::kWhole) EXPECT_EQ(longest, most) << tokens;
    }
  }
}

TEST(CudaChunk, PlacementScheduleAndLaunchesChangeNoBit) {
  const GpuCase base{
      .codec = kivi(4), .group = 2, .rows = 384 + 40, .tail_rows = 40, .n = 70, .placing = kContiguous};
  std::vector<GpuProblem> want = make_problems({base});
  GpuBatch two(want, GpuBatch::Path::kFast);
  ASSERT_TRUE(two.decode(cuda::find_kivi, {.seed = 0}, false));
  two.merge(2);
  for (const Placing& placing : {kContiguous, kRowMajor, kTiny, kOdd}) {
    GpuCase other = base;
    other.placing = placing;
    for (const unsigned seed : {1u, 2u}) {
      const std::vector<float> got = solve(cuda::find_kivi, {other}, seed).front().out;
      EXPECT_EQ(std::memcmp(want.front().out.data(), got.data(), got.size() * sizeof(float)), 0)
          << describe(other);
    }
  }
}

TEST(CudaChunk, KeepsTheScoresThatH2oAsksFor) {
  std::vector<GpuProblem> problems = make_problems(
      {{.codec = kivi(4), .group = 3, .rows = 64 + 20, .tail_rows = 20, .n = 30, .placing = kTiny}});
  GpuBatch batch(problems, GpuBatch::Path::kFast, true);
  ASSERT_TRUE(batch.decode(cuda::find_kivi, {.seed = 1}));
  batch.add_attention_weights(3);
  const GpuProblem& p = problems.front();
  const std::vector<double> want = p.exact_weights();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(p.weights[i], want[i], 1e-5 * want[i]) << i;
}

}  // namespace
}  // namespace kv
