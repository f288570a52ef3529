// Each retention against its FP64 version, for every codec it can be paired with; then what is special about
// each.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "harness/policy_check.h"
#include "harness/reference_policies.h"
#include "harness/workload.h"
#include "tests/contract.h"

namespace kv {
namespace {

using namespace contract;
using reference::KeptTokens;
using reference::Policy;
using reference::PolicyInput;
using reference::PolicyRun;

// Cases are so small that threads only cost.
[[maybe_unused]] const bool kOneThread = (omp_set_num_threads(1), true);

constexpr CacheShape kShape{.layers = 1, .q_heads = 4, .kv_heads = 2, .head_dim = 32, .max_tokens = 2048};

// f32 kernels against FP64 on the same rows.
constexpr double kKernelError = 2e-6;  // of f32 rows

Tokens read_tokens(std::string_view family, const CacheShape& shape, int64_t n, uint64_t seed) {
  const auto workload = make_synthetic(family,
                                       {.layers = shape.layers,
                                        .q_heads = shape.q_heads,
                                        .kv_heads = shape.kv_heads,
                                        .head_dim = shape.head_dim},
                                       seed);
  Tokens t{n,
           std::vector<float>(static_cast<size_t>(shape.q_heads * n * shape.head_dim)),
           std::vector<float>(static_cast<size_t>(shape.kv_heads * n * shape.head_dim)),
           {}};
  t.v = t.k;
  workload->read(0, 0, 0, n, t.q.data(), t.k.data(), t.v.data());
  return t;
}

// What a cache gave for a whole sequence, and kept after each chunk (at the chunk's last token; other entries
// are empty).
struct Observed {
  std::vector<float> out;  // [q_heads, n, head_dim]
  KeptTokens kept;
};

Observed observe(const Spec& spec, const CacheShape& shape, const Tokens& all,
                 std::span<const int64_t> chunks) {
  Ledger ledger;
  const auto cache = build_cache(spec, shape, ledger);
  const SequenceId id = cache->add_sequence();
  Observed seen{std::vector<float>(all.q.size()), KeptTokens(static_cast<size_t>(shape.kv_heads))};
  for (auto& kept : seen.kept) kept.resize(static_cast<size_t>(all.n));
  int64_t first = 0;
  for (const int64_t n : chunks) {
    const std::vector<float> out = drive(*cache, id, slice(shape, all, first, n), {&n, 1});
    for (int h = 0; h < shape.q_heads; ++h) {
      std::copy_n(out.begin() + h * n * shape.head_dim, n * shape.head_dim,
                  seen.out.begin() + (h * all.n + first) * shape.head_dim);
    }
    first += n;
    for (int h = 0; h < shape.kv_heads; ++h) seen.kept[h][first - 1] = cache->kept(id, 0, h);
  }
  return seen;
}

// A prompt, then single tokens.
std::vector<int64_t> prompt_then_ones(int64_t prompt, int64_t n) {
  std::vector<int64_t> chunks{prompt};
  chunks.insert(chunks.end(), static_cast<size_t>(n - prompt), 1);
  return chunks;
}

PolicyInput input_of(const CacheShape& shape, const Tokens& all) {
  return {.q = all.q,
          .k = all.k,
          .v = all.v,
          .raw_k = {},
          .q_heads = shape.q_heads,
          .kv_heads = shape.kv_heads,
          .n = all.n,
          .head_dim = shape.head_dim,
          .prompt = 0,
          .rotation = reference::plain_rotation(shape.rope.theta, shape.head_dim,
                                                shape.rope.pairs == RopePairs::kHalves)};
}

double relative_l2(std::span<const float> got, std::span<const double> want) {
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

// The tokens that head 0 keeps at the end, in ascending order.
std::set<int64_t> kept_at_end(const Observed& seen, size_t head = 0) {
  return {seen.kept[head].back().begin(), seen.kept[head].back().end()};
}

// Prompts matter to snapkv alone, which is otherwise `full`.
bool is_prompted(const Spec& spec) { return spec.retention.name == "snapkv"; }

// Every retention that evicts, with every codec that it can be paired with.
std::vector<Spec> evicting_specs(bool prompted) {
  std::vector<Spec> specs;
  for (const auto* c : kCodecs)
    for (const std::string& codec : stage_forms(*c))
      for (const char* retention : {"ring(window=24)",
                                    "ring(window=24,sinks=4)",
                                    "ring(window=1)",
                                    "h2o(heavy=16,recent=16)",
                                    "h2o(heavy=1,recent=40)",
                                    "h2o(heavy=40,recent=1)",
                                    "tova(budget=32)",
                                    "tova(budget=1)",
                                    "knorm(budget=32)",
                                    "knorm(budget=2)",
                                    "random(budget=32)",
                                    "random(budget=3,seed=9)",
                                    "snapkv(budget=48,window=16,kernel=7)",
                                    "snapkv(budget=40,window=8,kernel=1)",
                                    "ring(window=24,sinks=4,positions=cache)",
                                    "h2o(heavy=16,recent=16,positions=cache)",
                                    "tova(budget=32,positions=cache)",
                                    "knorm(budget=32,positions=cache)",
                                    "random(budget=32,positions=cache)",
                                    "snapkv(budget=48,window=16,kernel=7,positions=cache)"}) {
        const Spec spec = parse_spec("contiguous/" + codec + "/" + retention);
        const bool typical = !turns_rows(spec) || codec == c->name;
        if (unsupported_reason(spec).empty() && typical && is_prompted(spec) <= prompted)
          specs.push_back(spec);
      }
  return specs;
}

class Fp64 : public testing::TestWithParam<Spec> {};
class Chunks : public testing::TestWithParam<Spec> {};

std::string test_name(const testing::TestParamInfo<Spec>& info) {
  std::string name;
  for (const char c : info.param.print()) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, Fp64, testing::ValuesIn(evicting_specs(true)), test_name);
INSTANTIATE_TEST_SUITE_P(All, Chunks, testing::ValuesIn(evicting_specs(false)), test_name);

// Every choice is the FP64 policy's, but for near ties; every answer is FP64 attention over what that choice
// leaves.
TEST_P(Fp64, AgreesOnEveryChoiceAndEveryAnswer) {
  constexpr int64_t kTokens = 240, kPrompt = 120;
  const Codec codec = codec_of(GetParam()).make(GetParam().codec);
  const Policy policy = policy_of(GetParam(), kShape.max_tokens);
  for (const char* family : {"heavy", "local"}) {
    const Tokens all = read_tokens(family, kShape, kTokens, 1);
    const bool prompted = is_prompted(GetParam());
    const Observed seen = observe(GetParam(), kShape, all, prompt_then_ones(prompted ? kPrompt : 1, kTokens));
    Tokens stored = all;
    stored.k = through_codec(codec.k, kShape.head_dim, all.k);
    stored.v = through_codec(codec.v, kShape.head_dim, all.v);
    PolicyInput input = input_of(kShape, stored);
    input.raw_k = all.k;
    input.prompt = prompted ? kPrompt : 0;
    const PolicyRun followed = reference::run_policy(policy, input, &seen.kept);
    EXPECT_LT(relative_l2(seen.out, followed.out), contract::attention_tolerance(GetParam())) << family;
    EXPECT_GT(followed.choices, 0);
    EXPECT_LE(followed.worst_miss, near_tie(kernel_error_bound(GetParam()))) << family;
    EXPECT_LE(followed.disputed * 500, followed.choices)
        << family << ": " << followed.disputed << " near ties";
    const PolicyRun free = reference::run_policy(policy, input);
    if (followed.disputed == 0) {
      EXPECT_EQ(free.kept, followed.kept) << family;
    }
    // What was evicted mattered: full attention answers otherwise.
    Policy full = policy;
    full.name = "full";
    EXPECT_GT(relative_l2(seen.out, reference::run_policy(full, input).out), 1e-3) << family;
  }
}

// The whole prefill in one step, and in odd chunks, says what single steps say.
TEST_P(Chunks, LongerThanTheBudgetAreStillTokenByToken) {
  const Tokens all = read_tokens("heavy", kShape, 200, 2);
  const Observed ones = observe(GetParam(), kShape, all, prompt_then_ones(1, 200));
  for (const std::vector<int64_t>& chunks :
       {std::vector<int64_t>{200}, {23, 1, 25, 24, 100, 27}, {31, 33, 32, 104}}) {
    const Observed seen = observe(GetParam(), kShape, all, chunks);
    EXPECT_LT(contract::relative_l2(seen.out, ones.out), contract::attention_tolerance(GetParam()));
    EXPECT_EQ(kept_at_end(seen), kept_at_end(ones));
    EXPECT_EQ(kept_at_end(seen, 1), kept_at_end(ones, 1));
  }
}

// FP64 attention over the last `window` tokens and the first `sinks`, with no idea of slots.
std::vector<double> windowed(const CacheShape& shape, const Tokens& all, int64_t window, int64_t sinks) {
  std::vector<double> out;
  const auto rows = [&](const std::vector<float>& from, int head, int64_t first, int64_t n,
                        std::vector<float>& to) {
    const auto at = from.begin() + (head * all.n + first) * shape.head_dim;
    to.insert(to.end(), at, at + n * shape.head_dim);
  };
  for (int h = 0; h < shape.q_heads; ++h) {
    for (int64_t t = 0; t < all.n; ++t) {
      const int64_t begin = std::max<int64_t>(0, t + 1 - window), head = std::min(sinks, begin);
      std::vector<float> q, k, v;
      rows(all.q, h, t, 1, q);
      rows(all.k, h / shape.group(), 0, head, k), rows(all.k, h / shape.group(), begin, t + 1 - begin, k);
      rows(all.v, h / shape.group(), 0, head, v), rows(all.v, h / shape.group(), begin, t + 1 - begin, v);
      const auto result = reference::attend(q, k, v, head + t + 1 - begin);
      out.insert(out.end(), result.out.begin(), result.out.end());
    }
  }
  return out;
}

// Each row [head_dim] of x [heads, n, head_dim] turned by its token's position.
std::vector<float> turned(const CacheShape& shape, const std::vector<float>& x, int64_t n) {
  std::vector<float> out(x.size()), angles(static_cast<size_t>(shape.head_dim));
  for (int64_t row = 0; row * shape.head_dim < static_cast<int64_t>(x.size()); ++row) {
    rope_angles(shape.rope, shape.head_dim, row % n, angles.data());
    rotate(shape.rope.pairs, shape.head_dim, angles.data(), x.data() + row * shape.head_dim,
           out.data() + row * shape.head_dim);
  }
  return out;
}

// A window's keys stand in the cache as far apart as in the text, so it does not matter who turns them; with
// sinks it does.
TEST(Ring, PositionsOfTheCacheMatterOnlyWithSinks) {
  CacheShape shape = kShape;
  for (const RopePairs pairs : {RopePairs::kNeighbours, RopePairs::kHalves}) {
    shape.rope.pairs = pairs;
    const Tokens all = make_tokens(shape, 200, 6);
    Tokens after = all;
    after.q = turned(shape, all.q, 200);
    after.k = turned(shape, all.k, 200);
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
  Ledger ledger;
  const auto cache = build_cache(spec, two, ledger), wrong = build_cache(spec, other, ledger);
  const SequenceId id = cache->add_sequence();
  EXPECT_NO_THROW(cache->unfreeze(cache->freeze(id)));
  EXPECT_THROW(wrong->unfreeze(cache->freeze(id)), std::invalid_argument);
}

TEST(Ring, IsExactlyWindowedAttention) {
  const Tokens all = make_tokens(kShape, 330, 3);
  for (const int64_t window : {1, 2, 31, 32, 33, 64}) {
    for (const int64_t sinks : {0, 1, 4}) {
      const Spec spec = parse_spec("contiguous/ring(window=" + std::to_string(window) +
                                   ",sinks=" + std::to_string(sinks) + ")");
      const std::vector<double> want = windowed(kShape, all, window, sinks);
      const auto run = [&](const std::vector<int64_t>& chunks) {
        return observe(spec, kShape, all, chunks).out;
      };
      EXPECT_LT(relative_l2(run(prompt_then_ones(1, 330)), want), kKernelError) << spec.print();
      EXPECT_LT(relative_l2(run({330}), want), kKernelError) << spec.print();
      EXPECT_LT(relative_l2(run({window, 330 - window}), want), kKernelError) << spec.print();
      EXPECT_LT(relative_l2(run({window + 1, window, 330 - 2 * window - 1}), want), kKernelError)
          << spec.print();
      EXPECT_LT(relative_l2(run({window + sinks, 1, 329 - window - sinks}), want), kKernelError)
          << spec.print();
    }
  }
}

TEST(Ring, KeepsWhatItSays) {
  const Tokens all = make_tokens(kShape, 100, 4);
  const Observed seen =
      observe(parse_spec("contiguous/ring(window=5,sinks=2)"), kShape, all, prompt_then_ones(1, 100));
  EXPECT_EQ(kept_at_end(seen), (std::set<int64_t>{0, 1, 95, 96, 97, 98, 99}));
  EXPECT_EQ(seen.kept[0][6], (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(seen.kept[0][7], (std::vector<int64_t>{0, 1, 7, 3, 4, 5, 6}))
      << "the slot of the oldest is overwritten";
}

// All that a cache holds, workspace included, is the same at twice the budget and at ten times, and between
// the two nothing is allocated.
TEST(Memory, IsFlatInTheNumberOfTokens) {
  constexpr int64_t kBudget = 40;
  const Tokens all = make_tokens(kShape, 10 * kBudget, 5);
  for (const auto* placement : kPlacements) {
    for (const char* retention : {"ring(window=36,sinks=4)", "h2o(heavy=20,recent=20)", "tova(budget=40)",
                                  "knorm(budget=40)", "random(budget=40)"}) {
      const Spec spec = parse_spec(std::string(placement->name) + "/f16/" + retention);
      if (!unsupported_reason(spec).empty()) continue;  // a file's rows cannot be overwritten
      Ledger ledger;
      const auto cache = build_cache(spec, kShape, ledger);
      const SequenceId id = cache->add_sequence();
      const auto counts = [&] {
        std::vector<int64_t> all_counts;
        for (const Ledger::Count& count : {ledger.payload(), ledger.metadata(), ledger.workspace()}) {
          all_counts.insert(all_counts.end(), {count.current_bytes, count.allocations});
        }
        return all_counts;
      };
      drive(*cache, id, slice(kShape, all, 0, 2 * kBudget), std::vector<int64_t>(2 * kBudget, 1));
      const std::vector<int64_t> before = counts();
      drive(*cache, id, slice(kShape, all, 2 * kBudget, 8 * kBudget), std::vector<int64_t>(8 * kBudget, 1));
      EXPECT_EQ(counts(), before) << spec.print();
    }
  }
}

// Ids and scores are counted, and only they.
TEST(Memory, MetadataIsTheIdsAndTheScores) {
  const auto metadata = [](const std::string& retention) {
    Ledger ledger;
    const auto cache = build_cache(parse_spec("contiguous/f16/" + retention), kShape, ledger);
    cache->add_sequence();
    return ledger.metadata().current_bytes / kShape.kv_heads;
  };
  EXPECT_EQ(metadata("ring(window=40)"), 0);
  EXPECT_EQ(metadata("random(budget=40)"), 40 * 4);
  EXPECT_EQ(metadata("h2o(heavy=10,recent=30)"), 40 * 8);
  EXPECT_EQ(metadata("tova(budget=40)"), 40 * 8);
  EXPECT_EQ(metadata("knorm(budget=40)"), 40 * 8);
  EXPECT_EQ(metadata("snapkv(budget=40)"), 40 * 4);
  EXPECT_EQ(metadata("h2o(heavy=0.5,recent=4096)"), kShape.max_tokens * 8) << "no more slots than tokens";
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
  // Token 0 has the mass of its own query, which saw nothing else; 2 and 3 have none, and go lowest slot
  // first.
  EXPECT_EQ(seen.kept[0][5], (std::vector<int64_t>{0, 1, 5, 3, 4}));
  EXPECT_EQ(seen.kept[0][6], (std::vector<int64_t>{0, 1, 5, 6, 4}));
  Policy policy{.name = "h2o", .heavy = 4, .recent = 1};
  const PolicyRun want = reference::run_policy(policy, input_of(kOneHead, all));
  EXPECT_EQ(seen.kept, want.kept);
}

TEST(H2o, NeverEvictsTheRecent) {
  std::vector<float> score(40, 3.0f);
  for (size_t i = 1; i < score.size(); i += 3) score[i] = kNothing;  // the lightest are everywhere
  const Tokens all = scored_tokens(kOneHead, score);
  const Observed seen =
      observe(parse_spec("contiguous/h2o(heavy=2,recent=5)"), kOneHead, all, prompt_then_ones(1, 40));
  for (int64_t t = 0; t < 40; ++t) {
    const auto& kept = seen.kept[0][static_cast<size_t>(t)];
    for (int64_t recent = std::max<int64_t>(0, t - 4); recent <= t; ++recent) {
      EXPECT_EQ(std::count(kept.begin(), kept.end(), recent), 1) << "token " << recent << " after " << t;
    }
    EXPECT_EQ(static_cast<int64_t>(kept.size()), std::min<int64_t>(t + 1, 7));
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

TEST(Tova, EvictsWhatTheLastQueryIgnored) {
  const Tokens all = scored_tokens(kOneHead, {4, kNothing, 3, kNothing, 5, 2, 1, 6});
  const Observed seen =
      observe(parse_spec("contiguous/tova(budget=4)"), kOneHead, all, prompt_then_ones(1, 8));
  EXPECT_EQ(seen.kept[0][4], (std::vector<int64_t>{0, 4, 2, 3}))
      << "the lowest slot of the two without weight";
  EXPECT_EQ(seen.kept[0][5], (std::vector<int64_t>{0, 4, 2, 5}));
  EXPECT_EQ(seen.kept[0][6], (std::vector<int64_t>{0, 4, 2, 6})) << "5 was the newest, and not protected";
  EXPECT_EQ(seen.kept[0][7], (std::vector<int64_t>{0, 4, 2, 7}));
}

TEST(KNorm, EvictsTheLongestKey) {
  const Tokens all = scored_tokens(kOneHead, {-4, 1, 9, 2, -3, 4, 0.5, 0.25});
  const Observed seen =
      observe(parse_spec("contiguous/knorm(budget=3)"), kOneHead, all, prompt_then_ones(1, 8));
  EXPECT_EQ(seen.kept[0][3], (std::vector<int64_t>{0, 1, 3}));
  EXPECT_EQ(seen.kept[0][4], (std::vector<int64_t>{4, 1, 3}));
  EXPECT_EQ(seen.kept[0][5], (std::vector<int64_t>{5, 1, 3})) << "the newest is always admitted";
  EXPECT_EQ(seen.kept[0][7], (std::vector<int64_t>{6, 1, 7}));
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

TEST(SnapKv, KeepsWhatTheWindowLooksAtWithItsNeighbours) {
  std::vector<float> score(40, 0.0f);
  score[10] = score[22] = 4.0f;
  const Tokens all = scored_tokens(kOneHead, score);
  const Observed seen = observe(parse_spec("contiguous/snapkv(budget=10,window=4,kernel=3)"), kOneHead, all,
                                prompt_then_ones(32, 40));
  const std::vector<int64_t> cut{9, 10, 11, 21, 22, 23, 28, 29, 30, 31};
  EXPECT_EQ(seen.kept[0][31], cut);
  std::vector<int64_t> later = cut;
  for (int64_t t = 32; t < 40; ++t) later.push_back(t);
  EXPECT_EQ(seen.kept[0][39], later) << "later tokens are all kept";
}

TEST(SnapKv, AnswersThePromptInFull) {
  const Tokens all = make_tokens(kShape, 120, 10);
  const auto prompt = [&](const char* spec) {
    return observe(parse_spec(spec), kShape, all, std::vector<int64_t>{120});
  };
  const Observed seen = prompt("contiguous/snapkv(budget=40)");
  EXPECT_LT(contract::relative_l2(seen.out, prompt("contiguous").out), kKernelError);
  EXPECT_EQ(seen.kept[0].back().size(), 40u);
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
  Ledger ledger;
  const auto cache = build_cache(parse_spec("doubling/f16/snapkv(budget=64)"), kShape, ledger);
  const int64_t n = 1000;
  drive(*cache, cache->add_sequence(), all, {&n, 1});
  const int64_t row_bytes = 2 * 2 * kShape.kv_heads * kShape.head_dim;
  EXPECT_EQ(ledger.payload().current_bytes, 64 * row_bytes);
  EXPECT_EQ(ledger.payload().peak_bytes, (1024 + 64) * row_bytes);
}

TEST(SnapKv, SettingsThatDoNotFitAreRefused) {
  Ledger ledger;
  const auto message = [&](const char* spec) {
    try {
      build_cache(parse_spec(spec), kShape, ledger);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(message("contiguous/snapkv(budget=32,window=32)"),
            "snapkv: budget (32 rows) must be larger than window (32)");
  EXPECT_EQ(message("contiguous/snapkv(kernel=4)"), "snapkv: kernel must be odd, not 4");
}

TEST(Registry, CodecsThatEncodeRowsTogetherAreRefusedWithTheReason) {
  int pairs = 0;
  for (const auto* c : kCodecs) {
    const Codec codec = c->make(parse_spec("contiguous/" + std::string(c->name)).codec);
    if (codec.unit_rows() == 1) continue;
    for (const auto* r : kRetentions) {
      if (r->keeps_all) continue;
      const std::string reason =
          unsupported_reason(parse_spec("contiguous/" + std::string(c->name) + "/" + std::string(r->name)));
      EXPECT_NE(reason.find("retention '" + std::string(r->name) + "' drops single tokens, but codec '" +
                            std::string(c->name) + "' encodes groups of"),
                std::string::npos)
          << reason;
      ++pairs;
    }
  }
  if (pairs == 0) GTEST_SKIP() << "no codec in the registry encodes rows together";
}

// The error that 64 rows of 1024 make in the answers to the last 256 queries, as a share of random's.
double share_of_randoms_error(const std::string& retention, const char* family, uint64_t seed) {
  constexpr int64_t kTokens = 1024, kTail = 256;
  const Tokens all = read_tokens(family, kShape, kTokens, seed);
  const auto tail = [&](const std::string& spec) {
    const Observed seen = observe(parse_spec(spec), kShape, all, std::vector<int64_t>{kTokens});
    std::vector<float> out;
    for (int h = 0; h < kShape.q_heads; ++h) {
      const auto end = seen.out.begin() + (h + 1) * kTokens * kShape.head_dim;
      out.insert(out.end(), end - kTail * kShape.head_dim, end);
    }
    return out;
  };
  const std::vector<float> full = tail("contiguous");
  return contract::relative_l2(tail("contiguous/" + retention), full) /
         contract::relative_l2(tail("contiguous/random(budget=64)"), full);
}

// What each policy is for, and where it is no better than chance. Two-sided: one that does too well sees more
// than it may.
TEST(Worth, AgainstRandomAtTheSameNumberOfRows) {
  struct Case {
    const char *retention, *family;
    double low, high;
  };
  for (const Case& c :
       {Case{"h2o(heavy=32,recent=32)", "heavy", 0.15, 0.5},
        {"tova(budget=64)", "heavy", 0.05, 0.25},
        {"ring(window=64)", "heavy", 0.85, 1.15},  // age says nothing about weight there
        {"ring(window=64)", "local", 0.15, 0.35},
        {"h2o(heavy=32,recent=32)", "local", 0.2, 0.45},  // half of the window
        {"ring(window=64)", "sinks", 0.9, 1.1},
        {"ring(window=60,sinks=4)", "sinks", 0.1, 0.2},
        {"h2o(heavy=32,recent=32)", "sinks", 0.1, 0.2},
        {"knorm(budget=64)", "local", 4.0, 10.0},  // there short keys say nothing, and it keeps the same ones
        {"h2o(heavy=32,recent=32)", "gaussian", 0.9, 1.1}}) {
    for (const uint64_t seed : {1, 2}) {
      const double share = share_of_randoms_error(c.retention, c.family, seed);
      EXPECT_GT(share, c.low) << c.retention << " on " << c.family << ", seed " << seed;
      EXPECT_LT(share, c.high) << c.retention << " on " << c.family << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kv
