// Each retention against its FP64 version, for every codec it can be paired with; what all of them hold, and
// what they are worth against chance.
#include <numeric>

#include "tests/variants/retention_scene.h"

namespace kv {
namespace {

using namespace retention_tests;

// Prompts matter to those that cut them, which are otherwise `full`.
bool is_prompted(const Spec& spec) { return retention_of(spec).cuts_prompt; }

// Every retention that evicts, with every codec that it can be paired with.
std::vector<Spec> evicting_specs() {
  std::vector<Spec> specs;
  for (const auto* c : kCodecs)
    for (const std::string& codec : stage_forms(*c))
      for (const char* retention : {"ring(window=24)",
                                    "ring(window=24,sinks=4)",
                                    "ring(window=1)",
                                    "ring(window=191)",
                                    "ring(window=200,positions=cache)",
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
                                    "expected(budget=48)",
                                    "expected(budget=30,sinks=0,future=64)",
                                    "ada(budget=48,window=16,kernel=7,step=4)",
                                    "ada(budget=40,window=8,kernel=1,floor=0,step=1)",
                                    "streaming(budget=48)",
                                    "observed(budget=40)",
                                    "keydiff(budget=48)",
                                    "lagkv(budget=56,lag=16)",
                                    "lagkv(budget=48,lag=64)",
                                    "cur(budget=48)",
                                    "cur(budget=40,sinks=0,window=7)",
                                    "chunkkv(budget=60,window=16,kernel=7,chunk=8)",
                                    "chunkkv(budget=70,window=9,kernel=1,chunk=17)",
                                    "duo(recent=24,sinks=4)",
                                    "duo(recent=30,sinks=0,retrieval=1)",
                                    "ring(window=24,sinks=4,positions=cache)",
                                    "h2o(heavy=16,recent=16,positions=cache)",
                                    "tova(budget=32,positions=cache)",
                                    "knorm(budget=32,positions=cache)",
                                    "random(budget=32,positions=cache)",
                                    "snapkv(budget=48,window=16,kernel=7,positions=cache)"}) {
        const Spec spec = parse_spec("contiguous/" + codec + "/" + retention);
        const bool typical = !rotates_at_read(spec) || codec == c->name;
        if (!unsupported_reason(spec).empty() || !typical) continue;
        // Groups need a longer window.
        const RowUnits units = codec_of(spec).make(spec.codec).units();
        const bool grouped = units.rows > 1 || units.waiting > 0,
                   longer = spec.retention.name == "ring" && spec.retention.rows("window", 1) > 24;
        if (grouped == longer) specs.push_back(spec);
      }
  return specs;
}

class Fp64 : public testing::TestWithParam<Spec> {};

INSTANTIATE_TEST_SUITE_P(All, Fp64, testing::ValuesIn(evicting_specs()), test_name);

// How far the last answers in `out` are from those of attention over all rows.
double change_by_eviction(const Policy& policy, const PolicyInput& input, std::span<const float> out) {
  constexpr int64_t kLast = 8;
  const int64_t n = input.n, d = input.head_dim;
  const reference::RotationTable rotations(input.rotation, n);
  std::vector<float> got;
  std::vector<double> full;
  for (int64_t head = 0; head < input.q_heads; ++head) {
    const int64_t rows = head / (input.q_heads / input.kv_heads) * n * d;
    for (int64_t token = n - kLast; token < n; ++token) {
      const auto q = input.q.subspan((head * n + token) * d, d);
      const auto k = input.k.subspan(rows, (token + 1) * d), v = input.v.subspan(rows, (token + 1) * d);
      std::vector<int64_t> younger(static_cast<size_t>(token + 1));
      std::iota(younger.rbegin(), younger.rend(), 0);
      const reference::HeadResult answer = policy.cache_positions
                                               ? reference::attend_rotated(q, k, v, rotations, younger)
                                               : reference::attend(q, k, v, token + 1);
      full.insert(full.end(), answer.out.begin(), answer.out.end());
      const auto row = out.subspan((head * n + token) * d, d);
      got.insert(got.end(), row.begin(), row.end());
    }
  }
  return relative_l2(got, full);
}

// Every choice is the FP64 policy's, but for near ties; every answer is FP64 attention over what that choice
// leaves.
TEST_P(Fp64, AgreesOnEveryChoiceAndEveryAnswer) {
  constexpr int64_t kTokens = 240, kPrompt = 120;
  const Codec codec = codec_of(GetParam()).make(GetParam().codec);
  const Policy policy = verify::policy_of(GetParam(), kShape.max_tokens, kShape.kv_heads);
  for (const char* family : {"heavy", "local"}) {
    const Tokens all = read_tokens(family, kShape, kTokens, 1);
    const bool prompted = is_prompted(GetParam());
    const Observed seen = observe(GetParam(), kShape, all, prompt_then_ones(prompted ? kPrompt : 1, kTokens));
    Tokens stored = all;
    stored.k = verify::as_stored(codec, false, kShape.kv_heads, kShape.head_dim, all.k);
    stored.v = verify::as_stored(codec, true, kShape.kv_heads, kShape.head_dim, all.v);
    const auto waiting_k = verify::as_waiting(codec, false, kShape.head_dim, all.k),
               waiting_v = verify::as_waiting(codec, true, kShape.head_dim, all.v);
    PolicyInput input = input_of(kShape, stored);
    input.raw_k = all.k;
    input.raw_v = all.v;
    input.waiting_k = waiting_k;
    input.waiting_v = waiting_v;
    input.prompt = prompted ? kPrompt : 0;
    const PolicyRun followed = reference::run_policy(policy, input, &seen.kept);
    EXPECT_LT(relative_l2(seen.out, followed.out), contract::attention_tolerance(GetParam())) << family;
    EXPECT_GT(followed.choices, 0);
    EXPECT_LE(followed.worst_miss, verify::near_tie(kernel_error_bound(GetParam()))) << family;
    EXPECT_LE(followed.disputed * 500, followed.choices)
        << family << ": " << followed.disputed << " near ties";
    if (followed.disputed == 0) {
      EXPECT_EQ(reference::run_policy(policy, input).kept, followed.kept) << family;
    }
    // The evicted rows mattered: full attention answers otherwise.
    EXPECT_GT(change_by_eviction(policy, input, seen.out), 1e-3) << family;
  }
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
      memory::Ledger ledger;
      const auto cache = build_cache(spec, kShape, ledger);
      const SequenceId id = cache->add_sequence();
      const auto counts = [&] {
        std::vector<int64_t> all_counts;
        for (const memory::Ledger::Count& count : {ledger.payload(), ledger.metadata(), ledger.workspace()}) {
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
    memory::Ledger ledger;
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
  EXPECT_EQ(metadata("duo(recent=40)"), 0);
  EXPECT_EQ(metadata("expected(budget=40)"), 40 * 4);
  EXPECT_EQ(metadata("ada(budget=40)"), 40 * 4);
  EXPECT_EQ(metadata("pyramid(budget=53)"), 53 * 4);
  EXPECT_EQ(metadata("h2o(heavy=0.5,recent=4096)"), kShape.max_tokens * 8) << "no more slots than tokens";
}

TEST(Registry, CodecsThatEncodeRowsTogetherAreRefusedWithTheReason) {
  int pairs = 0;
  for (const auto* c : kCodecs) {
    const Codec codec = c->make(parse_spec("contiguous/" + std::string(c->name)).codec);
    if (codec.unit_rows() == 1) continue;
    for (const auto* r : kRetentions) {
      if (r->keeps_all || r->ring) continue;
      const std::string reason =
          unsupported_reason(parse_spec("contiguous/" + std::string(c->name) + "/" + std::string(r->name)));
      EXPECT_NE(reason.find("retention '" + std::string(r->name) + "' drops single tokens, but codec '" +
                            std::string(c->name) + "' encodes groups of"),
                std::string::npos)
          << reason;
      ++pairs;
    }
  }
  EXPECT_GT(pairs, 0);
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

// The inputs that each policy is good at, and those on which it is no better than chance. Two-sided: a policy that does too
// well sees more than it may.
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
