// Retentions whose heads keep different numbers of rows: what is held, where, and what happens to it.
#include "tests/message_of.h"
#include "tests/variants/retention_scene.h"

namespace kv {
namespace {

using namespace retention_tests;

constexpr CacheShape kFour{
    .layers = 2, .q_heads = 8, .kv_heads = 4, .head_dim = 32, .max_tokens = 512, .max_sequences = 2};
constexpr int64_t kRow = 2 * 2 * 32;  // bytes of one head's K and V in f16

std::string refusal(const std::string& spec, const CacheShape& shape) {
  memory::Ledger ledger;
  return message_of([&] { build_cache(parse_spec(spec), shape, ledger)->add_sequence(); });
}

std::vector<size_t> kept_sizes(Cache& cache, SequenceId id, int layer) {
  std::vector<size_t> sizes;
  for (int head = 0; head < cache.shape().kv_heads; ++head)
    sizes.push_back(cache.kept(id, layer, head).size());
  return sizes;
}

// Rows of each head at the end.
std::vector<int64_t> kept_at(const Observed& seen) {
  std::vector<int64_t> sizes;
  for (const auto& head : seen.kept) sizes.push_back(std::ssize(head.back()));
  return sizes;
}

// Both layers get the same tokens.
void fill(Cache& cache, SequenceId id, const Tokens& tokens, std::span<const int64_t> chunks) {
  for (int layer = 0; layer < cache.shape().layers; ++layer) drive(cache, id, tokens, chunks, layer);
}

TEST(Duo, HeadsThatAreNamedKeepAllAndTheOthersTheirWindow) {
  const Tokens all = make_tokens(kFour, 300, 1);
  for (const auto& [retrieval, sizes] :
       std::map<std::string, std::vector<size_t>>{{"0.5", {300, 300, 28, 28}},
                                                  {"0.3", {300, 28, 28, 28}},
                                                  {"0+3", {300, 28, 28, 300}},
                                                  {"2", {28, 28, 300, 28}}}) {
    memory::Ledger ledger;
    const auto cache = build_cache(parse_spec("paged/f16/duo(recent=24,sinks=4,retrieval=" + retrieval + ")"),
                                   kFour, ledger);
    const SequenceId id = cache->add_sequence();
    fill(*cache, id, all, std::vector<int64_t>{100, 200});
    EXPECT_EQ(kept_sizes(*cache, id, 1), sizes) << retrieval;
    const size_t streaming = sizes[0] == 28 ? 0 : sizes[1] == 28 ? 1 : 2;
    std::vector<int64_t> window = cache->kept(id, 1, static_cast<int>(streaming));
    std::sort(window.begin(), window.end());
    EXPECT_EQ(window[3], 3);
    EXPECT_EQ(window[4], 300 - 24);
    EXPECT_EQ(window.back(), 299);
  }
}

// By hand, since the closed form and the count might err together.
TEST(Duo, EveryPlacementHoldsNoMoreThanEachHeadNeeds) {
  const Tokens all = make_tokens(kFour, 300, 1);
  const auto payload = [&](const std::string& placement) {
    memory::Ledger ledger;
    const auto cache =
        build_cache(parse_spec(placement + "/f16/duo(recent=24,sinks=4,retrieval=1+3)"), kFour, ledger);
    fill(*cache, cache->add_sequence(), all, std::vector<int64_t>{300});
    return ledger.payload().current_bytes / (2 * kRow);  // rows of a layer
  };
  EXPECT_EQ(payload("concat"), 2 * 300 + 2 * 28);
  EXPECT_EQ(payload("contiguous"), 2 * 512 + 2 * 28) << "room for the most tokens, where they are kept";
  EXPECT_EQ(payload("doubling"), 2 * 512 + 2 * 32);
  EXPECT_EQ(payload("segmented(rows=32)"), 2 * 320 + 2 * 32);
  EXPECT_EQ(payload("paged(segment=1)"), 2 * 304 + 2 * 32);
  EXPECT_EQ(payload("paged"), 2 * (2 * 512 + 2 * 32)) << "the pool of two sequences";
}

TEST(Duo, WhereAHeadIsWrittenChangesNoBit) {
  const Tokens all = make_tokens(kFour, 200, 2);
  const auto run = [&](const std::string& placement) {
    return observe(parse_spec(placement + "/q8_0/duo(recent=24,sinks=4,retrieval=1)"), kFour, all,
                   prompt_then_ones(50, 200))
        .out;
  };
  const std::vector<float> there = run("contiguous");
  for (const char* placement :
       {"contiguous(layout=bshd)", "contiguous(read=repeat)", "concat", "doubling(read=copy)",
        "segmented(rows=32,read=repeat)", "paged(layout=bshd)"})
    EXPECT_EQ(run(placement), there) << placement;
}

TEST(Duo, ThereIsAReasonWhereItCannotBe) {
  EXPECT_EQ(refusal("contiguous/f16/duo(retrieval=1+4)", kFour),
            "'retrieval=1+4': there is no KV head 4; a layer has 4, counted from 0");
  EXPECT_NE(refusal("tiered/f16/duo", kFour).find("a tier is chosen by age"), std::string::npos);
  for (const char* text : {"", "+", "1+", "3+1", "2+2", "a", "-1", "1024", "1.0"})
    EXPECT_NE(refusal("contiguous/f16/duo(retrieval=" + std::string(text) + ")", kFour)
                  .find("'retrieval' takes heads a+b or 0.x"),
              std::string::npos)
        << text;
}

// A pool that has blocks for some heads of a step and not for the others.
TEST(Duo, AStepThatRunsOutOfMemoryTakesNothing) {
  const Tokens all = make_tokens(kFour, 40, 3);
  const auto build = [](memory::Ledger& ledger, int pool) {
    CacheShape shape = kFour;
    shape.layers = 1;
    return build_cache(parse_spec("paged(block=16,segment=1,pool=" + std::to_string(pool) +
                                  ")/f16/duo(recent=12,sinks=4,retrieval=0+3)"),
                       shape, ledger);
  };
  memory::Ledger ledger;
  const auto cache = build(ledger, 5);
  const SequenceId id = cache->add_sequence();
  drive(*cache, id, slice(kFour, all, 0, 16), std::vector<int64_t>{16});
  const int64_t before = ledger.payload().current_bytes;
  EXPECT_EQ(before, 4 * 16 * kRow);
  EXPECT_THROW(drive(*cache, id, slice(kFour, all, 16, 1), std::vector<int64_t>{1}), OutOfBlocks);
  EXPECT_EQ(ledger.payload().current_bytes, before);
  EXPECT_EQ(cache->tokens(id, 0), 16);
  EXPECT_EQ(kept_sizes(*cache, id, 0), (std::vector<size_t>{16, 16, 16, 16}));
  memory::Ledger roomy;
  const auto other = build(roomy, 6);
  EXPECT_NO_THROW(drive(*other, other->add_sequence(), all, std::vector<int64_t>{17}));
}

// Every query of the first head looks at token 5, the second head's at all tokens alike.
Tokens one_flat_head(int64_t n) {
  constexpr CacheShape shape = retention_tests::kShape;
  Tokens all = make_tokens(shape, n, 4);
  std::fill(all.q.begin(), all.q.end(), 0.0f);
  std::fill(all.k.begin(), all.k.end(), 0.0f);
  for (size_t row = 0; row < all.q.size(); row += shape.head_dim)
    all.q[row] = std::sqrt(static_cast<float>(shape.head_dim));
  all.k[5 * shape.head_dim] = 8.0f;
  return all;
}

// By hand: 5 of the 128 largest votes are the first head's, those of token 5 and its neighbours.
TEST(Ada, AHeadOfScatteredAttentionGetsTheRowsOfOneThatNeedsFewer) {
  const Tokens all = one_flat_head(400);
  for (const auto& [parameters, rows] : std::map<std::string, int64_t>{
           {"floor=0,step=1", 5}, {"floor=0.5,step=1", 32 + 3}, {"floor=0.2,step=16", 16}, {"floor=1", 64}}) {
    const std::vector<int64_t> kept =
        kept_at(observe(parse_spec("concat/ada(budget=72,window=8," + parameters + ")"),
                        retention_tests::kShape, all, prompt_then_ones(390, 400)));
    EXPECT_EQ(kept[0], rows + 8 + 10) << parameters << ": with the window, and what came later";
    EXPECT_EQ(kept[0] + kept[1], 2 * (72 + 10)) << parameters << ": the layer's total";
  }
}

TEST(Ada, MemoryByPartsOfAnotherSizeIsRefused) {
  EXPECT_EQ(refusal("segmented/f16/ada", kFour),
            "'segmented/f16/ada': heads of retention 'ada' trade 16 rows at a time, but placement "
            "'segmented' allocates 256: make `step` a multiple of that");
  EXPECT_NE(refusal("doubling/f16/ada", kFour).find("varying numbers of rows"), std::string::npos);
  for (const char* spec :
       {"segmented(rows=16)/f16/ada", "paged(block=8)/f16/ada", "contiguous/ada", "concat/ada(step=3)"})
    EXPECT_EQ(refusal(spec, kFour), "") << spec;
}

// All queries alike: no covariance. Keys 7 and 20 point their way; the value of 20 is short, and that of 30 long.
TEST(Expected, KeepsWhatQueriesLikeThoseSeenWouldAttendTo) {
  constexpr CacheShape kOne{.layers = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8, .max_tokens = 64};
  Tokens all = make_tokens(kOne, 44, 3);
  std::fill(all.q.begin(), all.q.end(), 0.0f);
  std::fill(all.k.begin(), all.k.end(), 0.0f);
  std::fill(all.v.begin(), all.v.end(), 1.0f);
  for (int64_t t = 0; t < 44; ++t) all.q[static_cast<size_t>(t * 8)] = std::sqrt(8.0f);
  all.k[7 * 8] = 2.0f, all.k[20 * 8] = 2.0f, all.k[25 * 8] = -2.0f;
  for (int x = 0; x < 8; ++x) all.v[20 * 8 + x] = 0.001f, all.v[30 * 8 + x] = 5.0f;
  const auto kept = [&](const std::string& parameters) {
    return observe(parse_spec("contiguous/expected(" + parameters + ")"), kOne, all, prompt_then_ones(40, 44))
        .kept[0];
  };
  EXPECT_EQ(kept("budget=4,sinks=2").at(39), (std::vector<int64_t>{0, 1, 7, 30}));
  EXPECT_EQ(kept("budget=4,sinks=0").at(39), (std::vector<int64_t>{0, 1, 7, 30})) << "of equals the earliest";
  EXPECT_EQ(kept("budget=38,sinks=1").at(39).size(), 38u);
  const std::vector<int64_t> most = kept("budget=38,sinks=1").at(39);
  EXPECT_EQ(std::count(most.begin(), most.end(), 20) + std::count(most.begin(), most.end(), 25), 0);
  EXPECT_EQ(kept("budget=4,sinks=2").back().size(), 8u) << "later tokens are kept";
  EXPECT_EQ(refusal("contiguous/expected(budget=4)", kOne),
            "expected: budget (4 rows) must be larger than sinks (4)");
}

// Queries along one channel, either way: their mean is 0, and only the covariance tells the keys of that channel.
TEST(Expected, TheCovarianceCounts) {
  constexpr CacheShape kOne{.layers = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8, .max_tokens = 64};
  Tokens all = make_tokens(kOne, 40, 3);
  std::fill(all.q.begin(), all.q.end(), 0.0f);
  std::fill(all.k.begin(), all.k.end(), 0.0f);
  std::fill(all.v.begin(), all.v.end(), 1.0f);
  for (int64_t t = 0; t < 40; ++t) {
    all.q[static_cast<size_t>(t * 8)] = t % 2 ? 3.0f : -3.0f;
    all.k[static_cast<size_t>(t * 8 + (t % 10 == 5 ? 0 : 1))] = 2.0f;
  }
  EXPECT_EQ(observe(parse_spec("contiguous/expected(budget=4,sinks=0)"), kOne, all, std::vector<int64_t>{40})
                .kept[0]
                .back(),
            (std::vector<int64_t>{5, 15, 25, 35}));
}

}  // namespace
}  // namespace kv
