// Promises of each placement beyond the contract: sharing, copies, and refusals of a pool that is used up.
#include "tests/variants/contract.h"

#include <map>
#include <numeric>

namespace kv::placement_test {
namespace {

using namespace contract;

// A row of one layer, K and V in f32: 2 heads * 2 * 8 * 4 = 128 bytes.
constexpr CacheShape kShape{
    .layers = 1, .q_heads = 2, .kv_heads = 2, .head_dim = 8, .max_tokens = 256, .max_sequences = 4};
constexpr int64_t kRowBytes = 128;

// One token for each of the sequences, as one batch.
void step_together(Cache& cache, const std::vector<SequenceId>& ids, uint64_t seed) {
  std::vector<Tokens> tokens;
  for (const SequenceId id : ids) tokens.push_back(make_tokens(kShape, 1, seed + static_cast<uint64_t>(id)));
  std::vector<float> out(ids.size() * 16);
  std::vector<StepInput> inputs;
  for (size_t i = 0; i < ids.size(); ++i) {
    inputs.push_back({ids[i], 1, tokens[i].q.data(), tokens[i].k.data(), tokens[i].v.data(), &out[i * 16]});
  }
  cache.step(0, inputs);
}

std::vector<float> stored_k(Cache& cache, SequenceId id) { return read_back(cache, id, 0, 1).k; }

// A fork copies nothing, and whoever writes first into a block that both have copies it, unless it is full. What they hold is
// cache_machine_test's.
TEST(ForkedBlocks, AreCopiedOnceByWhoeverWritesFirst) {
  struct Case {
    const char* spec;
    int64_t tokens, copied_rows;
    bool together;
  };
  for (const Case& c : {Case{"segmented(rows=32)", 80, 16, false}, Case{"segmented(rows=32)", 64, 0, true},
                        Case{"paged", 40, 16, false}, Case{"paged", 40, 16, true}}) {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec(c.spec), kShape, ledger);
    const SequenceId parent = cache->add_sequence();
    drive(*cache, parent, make_tokens(kShape, c.tokens, 1), ones(c.tokens));
    const SequenceId child = cache->fork(parent);
    EXPECT_EQ(ledger.copied_bytes(), 0) << c.spec;
    step_together(*cache, c.together ? std::vector{parent, child} : std::vector{child}, 7);
    step_together(*cache, {parent}, 8);
    EXPECT_EQ(ledger.copied_bytes(), c.copied_rows * kRowBytes) << c.spec << " at " << c.tokens;
  }
}

// How many blocks of 16 rows can still be had: sequences are filled until the pool refuses.
int64_t free_blocks(Cache& cache) {
  int64_t blocks = 0;
  const SequenceId id = cache.add_sequence();
  try {
    for (; blocks < 16; ++blocks) drive(cache, id, make_tokens(kShape, 16, 99), ones(16));
  } catch (const OutOfBlocks&) {
  }
  cache.release(id);
  return blocks;
}

TEST(Paged, ARefusedBatchChangesNothingAndLeavesEverythingUsable) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("paged(pool=4)"), kShape, ledger);
  const SequenceId a = cache->add_sequence(), b = cache->add_sequence();
  drive(*cache, a, make_tokens(kShape, 16, 1), ones(16));
  const SequenceId c = cache->fork(a);
  drive(*cache, b, make_tokens(kShape, 32, 2), ones(32));
  const auto of_a = stored_k(*cache, a), of_b = stored_k(*cache, b);
  try {
    step_together(*cache, {a, b, c}, 3);  // three new blocks; one is free
    FAIL() << "the pool cannot hold this";
  } catch (const OutOfBlocks& error) {
    EXPECT_STREQ(error.what(),
                 "out of blocks: the pool has 4, 3 in use, and 3 more are needed; release a sequence or give "
                 "pool=6 or more");
  }
  EXPECT_EQ(cache->tokens(a, 0), 16);
  EXPECT_EQ(cache->tokens(b, 0), 32);
  EXPECT_EQ(stored_k(*cache, a), of_a);
  EXPECT_EQ(stored_k(*cache, b), of_b);
  EXPECT_EQ(free_blocks(*cache), 1) << "the refused append holds on to blocks";
  step_together(*cache, {b}, 4);  // one at a time still works
  EXPECT_EQ(cache->tokens(b, 0), 33);
  cache->release(b);
  step_together(*cache, {a, c}, 5);  // and what a sequence gives back can be had at once
  EXPECT_EQ(cache->tokens(c, 0), 17);
}

// How often a block of one head lies right behind the one that is before it in the sequence.
int neighbours(const char* spec) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec(spec), kShape, ledger);
  const SequenceId id = cache->add_sequence();
  drive(*cache, id, make_tokens(kShape, 256, 1), ones(256));
  const std::vector<Span> spans = cache->spans(id, 0, 0);
  EXPECT_EQ(spans.size(), 16u);
  int count = 0;
  for (size_t i = 1; i < spans.size(); ++i) {
    count += spans[i].k.data == spans[i - 1].k.data + 16 * kRowBytes / 2;
  }
  return count;
}

TEST(Paged, OrderDecidesWhetherNeighboursAreNeighboursInMemory) {
  EXPECT_EQ(neighbours("paged"), 15);
  EXPECT_LE(neighbours("paged(order=shuffled)"), 2);
}

TEST(Placement, BlocksThatCutTheCodecsGroupsAreRefusedWithTheReason) {
  const Codec grouped{
      .k = {.format = Format::kChannel, .bits = 4, .group = 32}, .v = {}, .k_error = {}, .v_error = {}};
  const auto reason = [&](const char* text) {
    const Spec spec = parse_spec(text);
    return placement_of(spec).refuses(spec.placement, grouped, *kRetentions.front());
  };
  EXPECT_EQ(reason("paged(block=64)"), "");
  EXPECT_EQ(reason("segmented"), "");
  EXPECT_EQ(reason("paged"),
            "a block of 16 rows would cut the codec's groups of 32 rows; its rows must be a multiple of 32");
  EXPECT_NE(reason("segmented(rows=33)"), "");
}

// The bytes that `spec` copies, and its reallocations for K and V, while it grows to n tokens of one head of 8 channels.
struct Grown {
  int64_t copied_rows, allocations, capacity_rows;
};
Grown grow(const std::string& spec, int64_t n) {
  const CacheShape shape{.layers = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8, .max_tokens = 2000};
  constexpr int64_t row_bytes = 2 * 8 * 4;
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec(spec), shape, ledger);
  drive(*cache, cache->add_sequence(), make_tokens(shape, n, 1), ones(n));
  return {ledger.copied_bytes() / row_bytes, ledger.payload().allocations / 2,
          ledger.payload().current_bytes / row_bytes};
}

TEST(Doubling, FollowsItsFactor) {
  // Rows that there is room for, one after the other: written down, not computed.
  const std::map<std::string, std::vector<int64_t>> rooms = {
      {"1.5", {1, 2, 3, 5, 8, 12, 18, 27, 41, 62, 93, 140, 210, 315, 473, 710, 1065}},
      {"2", {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}},
      {"2.75", {1, 3, 9, 25, 69, 190, 523, 1439}},
      {"4", {1, 4, 16, 64, 256, 1024}}};
  for (const auto& [factor, room] : rooms) {
    for (const int64_t n : {int64_t{1}, int64_t{64}, int64_t{65}, int64_t{1000}}) {
      const auto last = std::lower_bound(room.begin(), room.end(), n);
      const Grown got = grow("doubling(factor=" + factor + ")", n);
      EXPECT_EQ(got.capacity_rows, *last) << factor << " at " << n;
      EXPECT_EQ(got.allocations, last - room.begin() + 1) << factor << " at " << n;
      EXPECT_EQ(got.copied_rows, std::accumulate(room.begin(), last, int64_t{0})) << factor << " at " << n;
    }
  }
}

// Step t of concat copies t rows; a reader that copies has all rows of a step anew, besides what growth copies.
TEST(Copies, GrowWithTheSquareOfTheTokens) {
  EXPECT_EQ(grow("concat", 300).copied_rows, 299 * 300 / 2);
  EXPECT_EQ(grow("doubling(read=copy)", 128).copied_rows, 127 + 128 * 129 / 2);
  const Grown gathered = grow("segmented(rows=32,read=copy)", 100);
  EXPECT_EQ(gathered.copied_rows, 100 * 101 / 2);
  EXPECT_EQ(gathered.capacity_rows, 128);
}

TEST(SegmentedCopy, GathersAllRowsIntoOneBufferAtEveryRead) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("segmented(rows=32,read=copy)"), kShape, ledger);
  const SequenceId id = cache->add_sequence();
  const int64_t before = ledger.workspace().current_bytes;
  drive(*cache, id, make_tokens(kShape, 100, 1), ones(100));
  const auto spans = cache->spans(id, 0, 1);
  ASSERT_EQ(spans.size(), 1u) << "a reader sees one tensor";
  EXPECT_EQ(spans[0].rows, 100);
  const std::vector<int64_t> lengths{100, 40};
  EXPECT_EQ(predicted_copies(parse_spec("segmented(rows=32,read=copy)"), kShape, lengths), 140 * kRowBytes);
  EXPECT_EQ(predicted_copies(parse_spec("segmented(rows=32)"), kShape, lengths), 0);
  EXPECT_GE(ledger.workspace().current_bytes - before, 100 * kRowBytes);
}

// Six query heads share two kv heads: three copies of each row, and nothing in place.
TEST(Repeat, CopiesKAndVForEveryQueryHeadAtEveryRead) {
  const CacheShape shape{
      .layers = 1, .q_heads = 6, .kv_heads = 2, .head_dim = 8, .max_tokens = 64, .max_sequences = 1};
  for (const char* text : {"contiguous(read=repeat)", "contiguous(layout=bshd,read=repeat)",
                           "doubling(read=repeat)", "segmented(rows=32,read=repeat)"}) {
    Spec plain = parse_spec(text);
    plain.placement.values["read"] = "view";
    memory::Ledger ledger, plain_ledger;
    const auto cache = build_cache(parse_spec(text), shape, ledger),
               grouped = build_cache(plain, shape, plain_ledger);
    EXPECT_EQ(cache->repeats(), 3);
    EXPECT_EQ(grouped->repeats(), 1);
    const SequenceId id = cache->add_sequence(), same = grouped->add_sequence();
    const Tokens all = make_tokens(shape, 50, 1);
    EXPECT_EQ(drive(*cache, id, all, ones(50)), drive(*grouped, same, all, ones(50))) << text;
    EXPECT_EQ(ledger.copied_bytes() - plain_ledger.copied_bytes(), 3 * kRowBytes * 50 * 51 / 2) << text;
    EXPECT_EQ(ledger.payload().current_bytes, plain_ledger.payload().current_bytes) << text;
    // The two differ in their copy, and in attention's own room.
    const int64_t predicted = predicted_copies(parse_spec(text), shape, std::vector<int64_t>{50});
    EXPECT_EQ(predicted, 3 * kRowBytes * 50) << text;
    EXPECT_GE(ledger.workspace().current_bytes, predicted) << text;
    EXPECT_LT(plain_ledger.workspace().current_bytes, predicted) << text;
    cache->release(id);
  }
}

TEST(Repeat, HasNothingToDoWhereEveryQueryHeadHasItsOwn) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("contiguous(read=repeat)"), kShape, ledger);
  EXPECT_EQ(cache->repeats(), 1);
  drive(*cache, cache->add_sequence(), make_tokens(kShape, 20, 1), ones(20));
  EXPECT_EQ(ledger.copied_bytes(), 0);
}

// Keys that the cache rotates are rotated in each of the copies.
TEST(Repeat, ChangesNoBitWherePositionsAreTheCaches) {
  const CacheShape shape{
      .layers = 1, .q_heads = 4, .kv_heads = 1, .head_dim = 32, .max_tokens = 64, .max_sequences = 1};
  const Tokens all = make_tokens(shape, 40, 1);
  const auto run = [&](const char* spec) {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec(spec), shape, ledger);
    return drive(*cache, cache->add_sequence(), all, ones(40));
  };
  EXPECT_EQ(run("contiguous(read=repeat)/f32/ring(window=16,sinks=2,positions=cache)"),
            run("contiguous/f32/ring(window=16,sinks=2,positions=cache)"));
}

// The distance to the same head's next row.
TEST(Layout, PutsARowOfAllHeadsSideBySide) {
  for (const char* name : {"contiguous", "concat", "doubling", "segmented", "paged"}) {
    for (const bool row_major : {false, true}) {
      memory::Ledger ledger;
      const auto cache =
          build_cache(parse_spec(name + std::string(row_major ? "(layout=bshd)" : "")), kShape, ledger);
      const SequenceId id = cache->add_sequence();
      drive(*cache, id, make_tokens(kShape, 9, 1), ones(9));
      const Span first = cache->spans(id, 0, 0).front(), second = cache->spans(id, 0, 1).front();
      EXPECT_EQ(first.k.stride, row_major ? 2 * 32 : 32) << name;
      EXPECT_EQ(second.k.data - first.k.data == 32, row_major) << name;
    }
  }
}

TEST(Layout, IsRefusedWithAReasonWhereAFileIsReadHeadByHead) {
  EXPECT_NE(unsupported_reason(parse_spec("tiered(layout=bshd)")).find("layout=bhsd"), std::string::npos);
}

}  // namespace
}  // namespace kv::placement_test
