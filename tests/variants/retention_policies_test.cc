// Properties of each retention, on inputs made for it. Which rows it keeps is retention_test's, against FP64 policies that
// policy_replay_test holds against hand-made cases.
#include <array>

#include "tests/message_of.h"
#include "tests/variants/retention_scene.h"

namespace kv {
namespace {

using namespace retention_tests;

// Each row [head_dim] of x [heads, n, head_dim] rotated by its token's position.
std::vector<float> rotated(const CacheShape& shape, const std::vector<float>& x, int64_t n) {
  std::vector<float> out(x.size()), angles(static_cast<size_t>(shape.head_dim));
  for (int64_t row = 0; row * shape.head_dim < static_cast<int64_t>(x.size()); ++row) {
    rope_angles(shape.rope, shape.head_dim, row % n, angles.data());
    rotate(shape.rope.pairs, shape.head_dim, angles.data(), x.data() + row * shape.head_dim,
           out.data() + row * shape.head_dim);
  }
  return out;
}

// A window's keys stand in the cache as far apart as in the text, so it does not matter who rotates them;
// with sinks it does.
TEST(Ring, PositionsOfTheCacheMatterOnlyWithSinks) {
  CacheShape shape = kShape;
  for (const RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalfSplit}) {
    shape.rope.pairs = pairs;
    const Tokens all = make_tokens(shape, 200, 6);
    Tokens after = all;
    after.q = rotated(shape, all.q, 200);
    after.k = rotated(shape, all.k, 200);
    const auto difference = [&](const std::string& ring) {
      const auto run = [&](const std::string& parameters, const Tokens& tokens) {
        return observe(parse_spec("contiguous/ring(" + ring + parameters + ")"), shape, tokens,
                       prompt_then_ones(1, 200))
            .out;
      };
      return contract::relative_l2(run(",positions=cache", all), run("", after));
    };
    EXPECT_LT(difference("window=24"), 1e-5);
    EXPECT_LT(difference("window=400,sinks=4"), 1e-5) << "nothing has been dropped";
    EXPECT_GT(difference("window=24,sinks=4"), 1e-2);
  }
}

TEST(Positions, OfAnotherRopeCannotBeLoaded) {
  const Spec spec = parse_spec("contiguous/ring(window=8,sinks=2,positions=cache)");
  CacheShape two = kShape, other = kShape;
  two.max_sequences = 2;
  other.rope.theta = 500;
  memory::Ledger ledger;
  const auto cache = build_cache(spec, two, ledger), wrong = build_cache(spec, other, ledger);
  const SequenceId id = cache->add_sequence();
  EXPECT_NO_THROW(cache->restore(cache->snapshot(id)));
  EXPECT_THROW(wrong->restore(cache->snapshot(id)), std::invalid_argument);
}

// One query head. Token t's key and every query lie on one axis: score of token t for every query is
// `score[t]`.
Tokens scored_tokens(const CacheShape& shape, const std::vector<float>& score) {
  const int64_t n = static_cast<int64_t>(score.size());
  Tokens t = make_tokens(shape, n, 6);
  std::fill(t.q.begin(), t.q.end(), 0.0f);
  std::fill(t.k.begin(), t.k.end(), 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    t.q[static_cast<size_t>(i * shape.head_dim)] = std::sqrt(static_cast<float>(shape.head_dim));
    t.k[static_cast<size_t>(i * shape.head_dim)] = score[static_cast<size_t>(i)];
  }
  return t;
}

constexpr CacheShape kOneHead{.layers = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 8, .max_tokens = 64};

// Scores so low that their probability is 0 in f32 and FP64 alike are exact ties.
constexpr float kNothing = -2000.0f;

TEST(H2o, EvictsTheLowestSlotOfATie) {
  const std::vector<float> score{kNothing, 5, kNothing, kNothing, 5, 5, 5, 5};
  const Tokens all = scored_tokens(kOneHead, score);
  const Observed seen =
      observe(parse_spec("contiguous/h2o(heavy=4,recent=1)"), kOneHead, all, prompt_then_ones(1, 8));
  // Token 0 has the weight of its own query, which saw nothing else; 2 and 3 have none, and go lowest slot
  // first.
  EXPECT_EQ(seen.kept[0][5], (std::vector<int64_t>{0, 1, 5, 3, 4}));
  EXPECT_EQ(seen.kept[0][6], (std::vector<int64_t>{0, 1, 5, 6, 4}));
  const Policy policy{.name = "h2o", .parameters = {{"heavy", 4}, {"recent", 1}}};
  const PolicyRun want = reference::run_policy(policy, input_of(kOneHead, all));
  EXPECT_EQ(seen.kept, want.kept);
}

// The query that fills the last slot is scored, whatever it came with.
TEST(Tova, EvictsByTheQueryThatFillsTheLastSlot) {
  std::vector<float> score(12, 3.0f);
  score[2] = kNothing;
  const Tokens all = scored_tokens(kOneHead, score);
  for (const std::vector<int64_t>& chunks : {std::vector<int64_t>{6, 1, 5}, {5, 1, 1, 5}, {7, 5}}) {
    const Observed seen = observe(parse_spec("contiguous/tova(budget=6)"), kOneHead, all, chunks);
    EXPECT_EQ(seen.kept[0][6], (std::vector<int64_t>{0, 1, 6, 3, 4, 5})) << chunks.size() << " chunks";
  }
}

TEST(H2o, BudgetsAreSeparateAndMayBeShares) {
  const Tokens all = read_tokens("heavy", kShape, 300, 7);
  const auto kept = [&](const std::string& retention, int64_t max_tokens) {
    CacheShape shape = kShape;
    shape.max_tokens = max_tokens;
    return observe(parse_spec("contiguous/" + retention), shape, all, prompt_then_ones(1, 300)).kept;
  };
  EXPECT_EQ(kept("h2o(heavy=0.05,recent=0.1)", 320), kept("h2o(heavy=16,recent=32)", 320));
  EXPECT_NE(kept("h2o(heavy=16,recent=32)", 320), kept("h2o(heavy=32,recent=16)", 320));
  EXPECT_EQ(kept("h2o(heavy=16,recent=32)", 320), kept("h2o(heavy=16,recent=32)", 2000));
}

TEST(Random, DependsOnTheSeedAndTheHeadAlone) {
  const Tokens all = make_tokens(kShape, 200, 8), other = make_tokens(kShape, 200, 9);
  const auto kept = [&](const Tokens& tokens, const char* spec) {
    return observe(parse_spec(spec), kShape, tokens, prompt_then_ones(1, 200)).kept;
  };
  const KeptTokens once = kept(all, "contiguous/random(budget=20)");
  EXPECT_EQ(once, kept(all, "contiguous/random(budget=20)"));
  EXPECT_EQ(once, kept(other, "concat/f16/random(budget=20)"));
  EXPECT_NE(once, kept(all, "contiguous/random(budget=20,seed=1)"));
  EXPECT_NE(once[0], once[1]) << "heads forget alike";
}

TEST(Random, EverySlotIsEquallyLikely) {
  constexpr int64_t kTokens = 16016, kSlots = 16;
  CacheShape shape = kOneHead;
  shape.max_tokens = kTokens;
  const Observed seen = observe(parse_spec("contiguous/random(budget=16)"), shape,
                                make_tokens(shape, kTokens, 1), prompt_then_ones(1, kTokens));
  std::array<double, kSlots> drawn{};
  for (int64_t t = kSlots; t < kTokens; ++t) {
    const auto& kept = seen.kept[0][static_cast<size_t>(t)];
    ++drawn[static_cast<size_t>(std::find(kept.begin(), kept.end(), t) - kept.begin())];
  }
  double chi_squared = 0.0;
  for (const double count : drawn) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_GT(chi_squared, 4.6) << "p = 0.005 of 15 degrees of freedom: too even to be random";
  EXPECT_LT(chi_squared, 32.8);
}

TEST(SnapKv, KeepsTheEarliestOfATie) {
  const Tokens all = scored_tokens(kOneHead, std::vector<float>(20, 0.0f));
  const Observed seen = observe(parse_spec("contiguous/snapkv(budget=7,window=4,kernel=1)"), kOneHead, all,
                                std::vector<int64_t>{20});
  EXPECT_EQ(seen.kept[0].back(), (std::vector<int64_t>{0, 1, 2, 16, 17, 18, 19}));
}

TEST(SnapKv, WithoutALongPromptNothingIsDropped) {
  const Tokens all = make_tokens(kShape, 120, 11);
  const auto kept = [&](const std::vector<int64_t>& chunks) {
    return observe(parse_spec("contiguous/snapkv(budget=40)"), kShape, all, chunks).kept[0].back().size();
  };
  EXPECT_EQ(kept({40, 32, 48}), 120u) << "a prompt that fits, and later chunks of any length";
  EXPECT_EQ(kept({1, 119}), 120u) << "a first step of one token is no prompt";
  EXPECT_EQ(kept({41, 79}), 119u);
}

TEST(SnapKv, GivesMemoryBackAfterThePrompt) {
  const Tokens all = make_tokens(kShape, 1000, 12);
  memory::Ledger ledger;
  const auto cache = build_cache(parse_spec("doubling/f16/snapkv(budget=64)"), kShape, ledger);
  const int64_t n = 1000;
  drive(*cache, cache->add_sequence(), all, {&n, 1});
  const int64_t row_bytes = 2 * 2 * kShape.kv_heads * kShape.head_dim;
  EXPECT_EQ(ledger.payload().current_bytes, 64 * row_bytes);
  EXPECT_EQ(ledger.payload().peak_bytes, (1024 + 64) * row_bytes);
}

TEST(SnapKv, SettingsThatDoNotFitAreRefused) {
  memory::Ledger ledger;
  const auto message = [&](const char* spec) {
    return message_of([&] { build_cache(parse_spec(spec), kShape, ledger); });
  };
  EXPECT_EQ(message("contiguous/snapkv(budget=32,window=32)"),
            "snapkv: budget (32 rows) must be larger than window (32)");
  EXPECT_EQ(message("contiguous/snapkv(kernel=4)"), "snapkv: kernel must be odd, not 4");
}

}  // namespace
}  // namespace kv
