// The GPU's kernels beside their table of cases, on the shim: which queries a chunk's takes, the bytes that it reads, and items' lengths.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/cuda/cuda_attention.h"
#include "tests/kernels/cuda/simt_gpu.h"
#include "variants/storage/attention_plan.h"

namespace kv {
namespace {

using namespace test;

int block_queries(cuda::FindInstance find, const GpuCase& c, int most_shared_bytes = kHopperBytes) {
  return find(layout_of(c.codec, c.head_dim, c.placing), c.group * c.n, most_shared_bytes).queries;
}

// Fewer queries than a block has would leave warps idle.
TEST(CudaChunk, TakesFromABlocksQueriesOn) {
  const auto of = [](int32_t n) { return GpuCase{.codec = same(kF16), .rows = n, .n = n}; };
  EXPECT_EQ(block_queries(cuda::find_plain, of(63)), 16);
  EXPECT_EQ(block_queries(cuda::find_plain, of(64)), 64);
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
        make_problems({{.codec = same(kF16), .group = c.group, .rows = c.n + c.before, .n = c.n}});
    ASSERT_EQ(block_queries(cuda::find_plain, problems.front().shape), c.block);
    int64_t bytes = 0;
    SimtGpu gpu;
    gpu.settings.copied_bytes = &bytes;
    GpuBatch batch(gpu, problems, {.item_rows = 4096});
    ASSERT_TRUE(batch.is_fast());
    batch.step();
    gpu.synchronize();
    constexpr int64_t kTileBytes = 16 * 2 * 64 * 2;
    EXPECT_EQ(bytes, c.tiles * kTileBytes) << c.n;
    const int64_t blocks_of_16 = c.group * c.n / 16, all_rows = (c.n + c.before + 15) / 16;
    std::printf("%d tokens behind %d: %lld tiles; blocks of 16 queries over all rows: %lld\n", c.n, c.before,
                static_cast<long long>(bytes / kTileBytes), static_cast<long long>(blocks_of_16 * all_rows));
  }
}

double error_of(const GpuCase& shape, int32_t item_rows) {
  std::vector<GpuProblem> problems = make_problems({shape});
  SimtGpu gpu;
  GpuBatch batch(gpu, problems, {.item_rows = item_rows});
  EXPECT_TRUE(batch.is_fast());
  batch.step();
  batch.fetch();
  return problems.front().relative_error();
}

// Tensor cores truncate their sums, and the errors add up over rows, so the plan limits an item's rows even if the GPU is busy
// without splits. The bound is gpu-check's.
TEST(CudaChunk, TheLongestItemsOfASingleQueryKeepTheErrorThatIsDemanded) {
  constexpr int32_t kRows = 65536;
  for (const CodecPair& codec : {same(kF16), same(token(8, true))}) {
    const GpuCase shape{.codec = codec, .rows = kRows};
    const double cut = error_of(shape, cuda::kMostItemRows), whole = error_of(shape, kRows);
    EXPECT_LT(cut, 5e-6) << codec.name();
    EXPECT_GT(whole, 5e-6) << codec.name() << ": then items need no limit";
    std::printf("%s: error %.2g in items as planned, %.2g in one\n", codec.name().c_str(), cut, whole);
  }
}

// A warp adds all of an item's rows, four times as many as one of decode.h's. The bound is gpu-check's.
TEST(CudaChunk, TheLongestItemsKeepTheErrorThatIsDemanded) {
  const GpuCase shape{.codec = same(token(8, true)), .rows = 8192, .n = 64};
  const auto find = [&](int queries) {
    return cuda::find_token(layout_of(shape.codec, 64, shape.placing), queries, kHopperBytes);
  };
  const double cut = error_of(shape, find(64).most_item_rows),
               as_decode = error_of(shape, find(1).most_item_rows);
  EXPECT_LT(cut, 5e-6);
  EXPECT_GT(as_decode, 5e-6) << "then items need no limit of their own";
  std::printf("error %.2g in items as planned, %.2g in those of a step\n", cut, as_decode);
}

TEST(CudaChunk, ThePlansItemsKeepToTheirLength) {
  const SimtGpu gpu;
  for (const auto& [tokens, most] : {std::pair{1, 4096}, {64, 1024}}) {
    for (const auto how : {AttentionPlan::Cut::kEven, AttentionPlan::Cut::kWhole}) {
      AttentionPlan plan;
      plan.layout = layout_of(same(kF16), 64, kContiguous);
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

}  // namespace
}  // namespace kv
