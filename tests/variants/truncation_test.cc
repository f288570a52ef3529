// truncate(): how far back each spec goes, with which reason no further, and what happens where memory is short. That a sequence which
// was cut back equals one whose later tokens never came is cache_machine_test's.
#include "tests/message_of.h"
#include "tests/variants/contract.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::truncation_test {
namespace {

using namespace contract;

constexpr CacheShape kShape{
    .layers = 2, .q_heads = 4, .kv_heads = 2, .head_dim = 32, .max_tokens = 224, .max_sequences = 2};

// A sequence as save() would write it: all that it holds.
std::string state(const Cache& cache, SequenceId id) {
  struct Text : Writer {
    std::string bytes;
    void write(const std::byte* data, size_t n) override {
      bytes.append(reinterpret_cast<const char*>(data), n);
    }
  } text;
  cache.write(text, id);
  return text.bytes;
}

// Steps tokens [first, end) of `all` through every layer; the outputs of the last.
std::vector<float> step_to(Cache& cache, SequenceId id, const Tokens& all, int64_t first, int64_t end) {
  const int64_t n = end - first;
  const Tokens part = slice(cache.shape(), all, first, n);
  std::vector<float> out;
  for (int layer = 0; layer < cache.shape().layers; ++layer) out = drive(cache, id, part, {&n, 1}, layer);
  return out;
}

// The fewest tokens that a sequence can be truncated to: all between them and now can be as well.
int64_t earliest(const Cache& cache, SequenceId id) {
  int64_t tokens = cache.tokens(id, 0);
  while (tokens > 0 && cache.refuses_truncation(id, tokens - 1).empty()) --tokens;
  for (int64_t fewer = 0; fewer < tokens; ++fewer)
    EXPECT_FALSE(cache.refuses_truncation(id, fewer).empty()) << fewer << " and not " << tokens - 1;
  return tokens;
}

// By hand: the tokens after a first step and after all, and the fewest to go back to.
TEST(TruncationReach, IsWhatWasNotOverwritten) {
  struct Case {
    const char* spec;
    int64_t prompt, tokens, earliest;
  };
  for (const Case& c :
       {Case{"contiguous", 5, 200, 0}, Case{"paged/q4_0", 5, 200, 0},
        Case{"contiguous/f32/ring(window=24,sinks=4)", 5, 28, 0},
        Case{"contiguous/f32/ring(window=24,sinks=4)", 5, 29, 29},
        Case{"contiguous/f32/knorm(budget=24)", 5, 24, 0}, Case{"contiguous/f32/knorm(budget=24)", 5, 25, 25},
        Case{"contiguous/f32/random(budget=24)", 5, 25, 25}, Case{"contiguous/f32/tova(budget=24)", 5, 24, 0},
        Case{"contiguous/f32/tova(budget=24)", 5, 25, 25},
        Case{"contiguous/f32/h2o(heavy=8,recent=8)", 5, 7, 7},
        Case{"contiguous/f32/snapkv(budget=24,window=8)", 24, 60, 0},
        Case{"contiguous/f32/snapkv(budget=24,window=8)", 30, 60, 30},
        // 128 raw rows and a group of 32: the ring has the newest 160 rows.
        Case{"contiguous/kivi", 160, 160, 0}, Case{"contiguous/kivi", 5, 161, 160},
        Case{"contiguous/kivi", 5, 193, 192}, Case{"contiguous/kivi", 5, 223, 192},
        Case{"contiguous/kivi(residual=0)", 5, 31, 0}, Case{"contiguous/kivi(residual=0)", 5, 32, 0},
        Case{"contiguous/kivi(residual=0)", 5, 33, 32}, Case{"contiguous/q8_0(first=4)", 5, 200, 0},
        Case{"contiguous/kivi(residual=0,first=4)", 5, 36, 0},
        Case{"contiguous/kivi(residual=0,first=4)", 5, 37, 36}}) {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec(c.spec), kShape, ledger);
    const SequenceId id = cache->add_sequence();
    const Tokens all = make_tokens(kShape, c.tokens, 1);
    step_to(*cache, id, all, 0, c.prompt);
    if (c.tokens > c.prompt) step_to(*cache, id, all, c.prompt, c.tokens);
    EXPECT_EQ(earliest(*cache, id), c.earliest) << c.spec << " at " << c.tokens;
  }
}

// Rows that were raw stay so where a sequence goes back and forth, and are gone once it was saved.
TEST(TruncationReach, OfAGroupCodecFollowsWhatTheRingHolds) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("contiguous/kivi(residual=0)"), kShape, ledger);
  const SequenceId id = cache->add_sequence();
  const Tokens all = make_tokens(kShape, 100, 1);
  step_to(*cache, id, all, 0, 96);
  EXPECT_EQ(earliest(*cache, id), 64);
  cache->truncate(id, 70);
  EXPECT_EQ(earliest(*cache, id), 64);
  const SequenceId fork = cache->fork(id);
  EXPECT_EQ(earliest(*cache, fork), 64);
  cache->release(fork);
  step_to(*cache, id, all, 70, 96);
  EXPECT_EQ(earliest(*cache, id), 64);
  const SequenceId loaded = cache->restore(cache->snapshot(id));
  EXPECT_EQ(earliest(*cache, loaded), 96);
  step_to(*cache, id, all, 96, 97);
  EXPECT_EQ(earliest(*cache, id), 96);
}

std::string refusal(Cache& cache, SequenceId id, int64_t tokens) {
  const std::string before = state(cache, id), said = message_of([&] { cache.truncate(id, tokens); });
  EXPECT_TRUE(said.empty() || state(cache, id) == before);
  return said;
}

TEST(TruncationReach, IsRefusedBeyondWithTheReason) {
  memory::Ledger ledger;
  const auto at = [&](const char* spec, int64_t tokens, int64_t back) {
    const auto cache = build_cache(parse_spec(spec), kShape, ledger);
    const SequenceId id = cache->add_sequence();
    step_to(*cache, id, make_tokens(kShape, tokens, 1), 0, tokens);
    return refusal(*cache, id, back);
  };
  EXPECT_EQ(at("contiguous/f32/ring(window=24,sinks=0)", 30, 29),
            "cannot truncate a sequence to 29 tokens: retention 'ring': a full cache overwrites rows; no "
            "fewer than 30 "
            "tokens");
  EXPECT_EQ(at("contiguous/f32/h2o(heavy=8,recent=8)", 7, 6),
            "cannot truncate a sequence to 6 tokens: retention 'h2o': scores are sums over all queries, "
            "which cannot be "
            "taken apart; no fewer than 7 tokens");
  EXPECT_EQ(at("contiguous/kivi(residual=0)", 65, 40),
            "cannot truncate a sequence to 40 tokens: codec 'kivi': older rows are encoded and no longer "
            "there raw; no "
            "fewer than 64 tokens");
  EXPECT_EQ(at("contiguous", 5, -1), "cannot truncate a sequence to -1 tokens: there is no such length");
  EXPECT_EQ(at("contiguous", 5, 9), "") << "a sequence that has no more stays as it is";
}

// A model's groups of layers go back together or not at all.
TEST(TruncationOfModels, AsksEveryGroupFirst) {
  const ModelShape shape(kShape, {});
  memory::Ledger ledger;
  const auto cache =
      build_cache(parse_layer_specs("contiguous + 1:paged/f32/ring(window=24)"), shape, ledger);
  const SequenceId id = cache->add_sequence();
  const Tokens all = make_tokens(kShape, 40, 1);
  step_to(*cache, id, all, 0, 20);
  const std::string at_20 = state(*cache, id);
  step_to(*cache, id, all, 20, 24);
  cache->truncate(id, 20);
  EXPECT_EQ(state(*cache, id), at_20);
  step_to(*cache, id, all, 20, 40);
  EXPECT_NE(refusal(*cache, id, 30).find("retention 'ring'"), std::string::npos);
}

// Layers may have been given different numbers of tokens.
TEST(TruncationOfModels, LeavesLayersThatHaveNoMore) {
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("paged"), kShape, ledger);
  const SequenceId id = cache->add_sequence();
  const Tokens all = make_tokens(kShape, 30, 1);
  for (const auto& [layer, n] : {std::pair{0, int64_t{30}}, std::pair{1, int64_t{10}}})
    drive(*cache, id, slice(kShape, all, 0, n), {&n, 1}, layer);
  cache->truncate(id, 20);
  EXPECT_EQ(cache->tokens(id, 0), 20);
  EXPECT_EQ(cache->tokens(id, 1), 10);
}

TEST(TruncationOfModels, IsRefusedByALinearLayersState) {
  memory::Ledger ledger;
  const auto cache =
      build_linear_cache({.key_heads = 1, .value_heads = 1, .key_dim = 8, .value_dim = 8}, kShape, ledger);
  const SequenceId id = cache->add_sequence();
  const std::vector<float> row(8, 0.5f);
  std::vector<float> out(8);
  const float gate = 0.5f;
  const StepInput in{.sequence = id,
                     .n = 1,
                     .q = row.data(),
                     .k = row.data(),
                     .v = row.data(),
                     .out = out.data(),
                     .alpha = &gate,
                     .beta = &gate};
  cache->step(0, {&in, 1});
  EXPECT_NE(refusal(*cache, id, 0).find("linear layer"), std::string::npos);
  cache->truncate(id, 1);
  EXPECT_EQ(cache->tokens(id, 0), 1);
}

// If memory is full, a placement that would copy into smaller buffers keeps its buffers.
TEST(TruncationOfPlacements, NeedsNoMemoryWhereRowsStayInMemory) {
  const CacheShape shape{
      .layers = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8, .max_tokens = 128, .max_sequences = 1};
  const Tokens all = make_tokens(shape, 100, 1);
  for (const char* spec : {"concat", "doubling"}) {
    memory::Ledger ledger(100 * 1024);
    const auto cache = build_cache(parse_spec(spec), shape, ledger);
    const SequenceId id = cache->add_sequence();
    step_to(*cache, id, all, 0, 100);
    const auto k = read_back(*cache, id, 0, 0).k;
    const Block rest(ledger,
                     static_cast<size_t>(100 * 1024 - held_bytes(ledger) - ledger.workspace().current_bytes),
                     ByteKind::kWorkspace);
    cache->truncate(id, 3);
    EXPECT_EQ(read_back(*cache, id, 0, 0).k, std::vector<float>(k.begin(), k.begin() + 24)) << spec;
  }
}

// No memory for the rows that have to come back: nothing has changed, and it works once there is some.
TEST(TruncationOfPlacements, ThatCannotBringRowsBackChangesNothing) {
  const CacheShape shape{
      .layers = 2, .q_heads = 2, .kv_heads = 1, .head_dim = 32, .max_tokens = 3000, .max_sequences = 1};
  const Tokens all = make_tokens(shape, 2600, 1);
  constexpr int64_t limit = 8 << 20;
  memory::Ledger ledger(limit);
  const auto cache = build_cache(parse_spec("tiered(hot=100,warm=0)"), shape, ledger);
  const SequenceId id = cache->add_sequence();
  step_to(*cache, id, all, 0, 1000);
  const std::string at_1000 = state(*cache, id);
  step_to(*cache, id, all, 1000, 2600);
  const std::string before = state(*cache, id);
  const int64_t chunk = 512 * 2 * 32 * 4;
  {
    // One layer's chunk fits, the other's does not.
    const Block rest(
        ledger, static_cast<size_t>(limit - held_bytes(ledger) - ledger.workspace().current_bytes - chunk),
        ByteKind::kWorkspace);
    EXPECT_THROW(cache->truncate(id, 1000), std::bad_alloc);
  }
  EXPECT_EQ(state(*cache, id), before);
  cache->truncate(id, 1000);
  EXPECT_EQ(state(*cache, id), at_1000);
}

}  // namespace
}  // namespace kv::truncation_test
