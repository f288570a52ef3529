// Only the chosen rows of a tier's file are read.
#include "tests/variants/contract.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kTwoHeads{
    .layers = 1, .q_heads = 4, .kv_heads = 2, .head_dim = 64, .max_tokens = 2400, .max_sequences = 3};
constexpr int64_t kPrompt = 1700, kSteps = 60;

// A cache whose prompt was appended without attention, as a context that is made for a measurement.
struct Decoding {
  Decoding(const std::string& placement, const std::string& rest)
      : cache(build_cache(parse_spec(placement + rest), kTwoHeads, ledger)), id(cache->add_sequence()) {
    const Tokens prompt = slice(kTwoHeads, all, 0, kPrompt);
    const StepInput in{id, kPrompt, nullptr, prompt.k.data(), prompt.v.data(), nullptr};
    cache->step(0, {&in, 1});
  }
  // Outputs of tokens [first, first + n), a step each.
  std::vector<float> decode(SequenceId sequence, int64_t first, int64_t n) {
    std::vector<float> outs;
    for (int64_t t = first; t < first + n; ++t) {
      const Tokens one = slice(kTwoHeads, all, t, 1);
      std::vector<float> out(one.q.size(), NAN);
      const StepInput in{sequence, 1, one.q.data(), one.k.data(), one.v.data(), out.data()};
      cache->step(0, {&in, 1});
      outs.insert(outs.end(), out.begin(), out.end());
    }
    return outs;
  }
  std::vector<float> decode(int64_t first, int64_t n) { return decode(id, first, n); }
  std::vector<std::vector<int64_t>> read() const {
    std::vector<std::vector<int64_t>> slots;
    for (int head = 0; head < kTwoHeads.kv_heads; ++head) slots.push_back(cache->read_slots(id, 0, head));
    return slots;
  }

  const Tokens all = make_tokens(kTwoHeads, kTwoHeads.max_tokens, 7);
  memory::Ledger ledger;
  std::unique_ptr<Cache> cache;
  SequenceId id;
};

const char* const kTiers[] = {"tiered(hot=512,warm=512)", "tiered(hot=1,warm=0)",
                              "tiered(hot=100,warm=30,chunk=1024)", "tiered(hot=300,warm=0,io=direct)"};

bool is_possible(const std::string& tiers) {
  return unsupported_reason(parse_spec(tiers + "/f16/quest"), kTwoHeads).empty();
}

TEST(SelectionOverTiers, HasTheBitsOfOneInMemory) {
  int compared = 0;
  for (const char* rest :
       {"/f32/quest(top=0.1)", "/f16/quest(page=5,top=0.07)", "/q8_0/quest(page=64,top=0.25)",
        "/q4_0(rotate=hadamard)/quest(top=0.2,least=9)", "/token(bits=4)/quest(page=600,top=0.3)"}) {
    Decoding plain("contiguous", rest);
    const std::vector<float> want = plain.decode(kPrompt, kSteps);
    for (const std::string tiers : kTiers) {
      if (!is_possible(tiers)) continue;  // a folder without O_DIRECT
      Decoding tiered(tiers, rest);
      EXPECT_EQ(tiered.decode(kPrompt, kSteps), want) << tiers << rest;
      EXPECT_EQ(tiered.read(), plain.read()) << tiers << rest;
      ++compared;
    }
  }
  EXPECT_GE(compared, 15);
}

TEST(SelectionOverTiers, AStepReadsTheChosenRowsOfTheFileAndNoOthers) {
  Decoding d("tiered(hot=200,warm=300)", "/f16/quest(top=0.06)");
  d.decode(kPrompt, 2);
  const int64_t before = d.ledger.disk_reads().bytes;
  d.decode(kPrompt + 2, 1);
  const int64_t in_file = (kPrompt + 3 - 500) / 512 * 512, row_bytes = 2 * 2 * kTwoHeads.head_dim;
  int64_t chosen = 0;
  for (const std::vector<int64_t>& slots : d.read())
    chosen += std::ranges::lower_bound(slots, in_file) - slots.begin();
  EXPECT_GT(chosen, 0);
  EXPECT_LT(chosen, in_file * kTwoHeads.kv_heads / 8);
  EXPECT_EQ(d.ledger.disk_reads().bytes - before, chosen * row_bytes);
}

// Direct reads take the aligned bytes around a page.
TEST(SelectionOverTiers, DirectReadsTakeWholeBlocksOfTheDisk) {
  if (!is_possible(kTiers[3])) GTEST_SKIP() << "the folder of temporary files has no O_DIRECT";
  Decoding d(kTiers[3], "/q8_0/quest(top=0.06)");
  d.decode(kPrompt, 2);
  const int64_t before = d.ledger.disk_reads().bytes;
  d.decode(kPrompt + 2, 1);
  const int64_t bytes = d.ledger.disk_reads().bytes - before;
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes % 4096, 0);
}

}  // namespace
}  // namespace kv
