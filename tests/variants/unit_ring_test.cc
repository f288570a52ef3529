// A window over rows that a codec encodes together: whole groups go, and those that stay are as they were encoded.
#include <algorithm>
#include <set>

#include "tests/variants/contract.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kRingShape{
    .layers = 1, .q_heads = 2, .kv_heads = 2, .head_dim = 64, .max_tokens = 400, .max_sequences = 3};
constexpr int64_t kTokens = 330;

struct Case {
  std::string placement, codec, retention;
  int64_t group, raw, sinks, window;  // raw: newest rows that are never encoded
};

class GroupsOf : public testing::TestWithParam<Case> {
 protected:
  static Spec spec(const std::string& retention) {
    return parse_spec(GetParam().placement + "/" + GetParam().codec + "/" + retention);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Codecs, GroupsOf,
    testing::Values(
        Case{"contiguous", "kivi", "ring(window=191)", 32, 128, 0, 191},
        Case{"paged(block=32)", "kivi(bits=2)", "ring(window=250,sinks=64)", 32, 128, 64, 250},
        Case{"segmented", "kivi(bits=2,group=8,residual=0,first=4)", "ring(window=37,sinks=4)", 8, 0, 4, 37},
        Case{"concat", "split(k=kivi(group=16,residual=20),v=q4_0)", "ring(window=0.25)", 16, 32, 0, 100},
        Case{"doubling", "q8_0(residual=40,first=3)", "ring(window=60,sinks=5)", 1, 40, 5, 60}));

// The newest groups that fit beside the rows that are raw, whole, at every length and in chunks.
TEST_P(GroupsOf, LeaveTheWindowOldestFirst) {
  const Case& c = GetParam();
  const Tokens all = make_tokens(kRingShape, kTokens, 1);
  for (const int64_t chunk : {1, 7, 330}) {
    memory::Ledger ledger;
    const auto cache = build_cache(spec(c.retention), kRingShape, ledger);
    const SequenceId id = cache->add_sequence();
    for (int64_t tokens = 0; tokens < kTokens;) {
      const int64_t n = std::min(chunk, kTokens - tokens);
      step(*cache, id, all, tokens, n);
      tokens += n;
      const std::vector<int64_t> rows = cache->kept(id, 0, 1);
      const std::set<int64_t> kept(rows.begin(), rows.end());
      ASSERT_EQ(kept.size(), rows.size());
      ASSERT_EQ(*kept.rbegin(), tokens - 1);
      int64_t oldest = tokens;
      while (oldest > 0 && kept.count(oldest - 1)) --oldest;
      const int64_t first = std::min(c.sinks, tokens);
      ASSERT_EQ(std::ssize(kept), tokens - oldest + (oldest > 0 ? first : 0)) << "sinks, and one stretch";
      if (oldest == 0) continue;
      ASSERT_EQ((oldest - c.sinks) % c.group, 0) << "groups are whole";
      ASSERT_LE(tokens - oldest, c.window) << tokens;
      ASSERT_GE(tokens - oldest, c.window - 2 * (c.group - 1)) << tokens;
    }
  }
}

// No row is encoded a second time: each has the bits that it has in a cache that keeps all.
TEST_P(GroupsOf, StayAsTheyWereEncoded) {
  const Tokens all = make_tokens(kRingShape, kTokens, 2);
  memory::Ledger ledger, full_ledger;
  const auto cache = build_cache(spec(GetParam().retention), kRingShape, ledger),
             full = build_cache(spec("full"), kRingShape, full_ledger);
  const SequenceId id = cache->add_sequence(), whole = full->add_sequence();
  drive(*full, whole, all, std::vector<int64_t>{kTokens});
  drive(*cache, id, all, std::vector<int64_t>{90, 1, 200, 39});
  const SequenceId fork = cache->fork(id), back = cache->restore(cache->snapshot(id));
  for (const SequenceId each : {id, fork, back}) {
    const Stored got = read_back(*cache, each, 0, 1), want = read_back(*full, whole, 0, 1);
    const std::vector<int64_t> kept = cache->kept(each, 0, 1);
    ASSERT_EQ(got.rows, std::ssize(kept));
    for (int64_t row = 0; row < got.rows; ++row) {
      const auto same = [&](const std::vector<float>& a, const std::vector<float>& b) {
        const auto at = a.begin() + row * kRingShape.head_dim;
        return std::equal(at, at + kRingShape.head_dim,
                          b.begin() + kept[static_cast<size_t>(row)] * kRingShape.head_dim);
      };
      ASSERT_TRUE(same(got.k, want.k) && same(got.v, want.v)) << "token " << kept[static_cast<size_t>(row)];
    }
  }
}

TEST(WindowsOfGroups, NeedRoomForOneAndRawSinks) {
  const auto reason = [](const char* text) { return unsupported_reason(parse_spec(text)); };
  EXPECT_EQ(reason("contiguous/kivi/ring(window=191)"), "");
  EXPECT_EQ(reason("contiguous/kivi/ring(window=190)"),
            "window=190 has no room for a group of 32 rows beside the newest rows, which codec 'kivi' keeps "
            "raw: make it 191 or more");
  EXPECT_EQ(reason("contiguous/kivi(first=4)/ring(window=512,sinks=4)"), "");
  EXPECT_EQ(reason("contiguous/kivi/ring(window=512,sinks=4)"),
            "sinks=4 cuts a group of 32 rows, which codec 'kivi' encodes together: keep the sinks raw with "
            "first=4, or make `sinks` a multiple of 32");
  EXPECT_EQ(reason("contiguous/token(k_mean=removed)/ring(window=512)"),
            "k_mean=removed takes the mean of the first rows, but retention 'ring' drops rows, and no FP64 "
            "reference checks both");
}

}  // namespace
}  // namespace kv
