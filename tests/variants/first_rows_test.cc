// first=N: the first rows are raw, and all others are stored as in a cache that never had them.
#include <gtest/gtest.h>

#include "kernels/format/encoding.h"
#include "tests/variants/contract.h"

namespace kv {
namespace {

using namespace contract;

constexpr CacheShape kShape{
    .layers = 1, .q_heads = 2, .kv_heads = 2, .head_dim = 64, .max_tokens = 160, .max_sequences = 2};
constexpr int64_t kTokens = 130, kFirst = 5;

std::vector<float> row_of(const std::vector<float>& rows, int64_t row) {
  return {rows.begin() + row * kShape.head_dim, rows.begin() + (row + 1) * kShape.head_dim};
}

class FirstRows : public testing::TestWithParam<const char*> {
 protected:
  static Spec spec_of(const std::string& first) {
    std::string text = GetParam();
    text.replace(text.find("first=0"), 7, "first=" + first);
    return parse_spec(text);
  }
};

TEST_P(FirstRows, AreRawAndTheOthersAreWhatTheyWouldBeWithoutThem) {
  const Tokens all = make_tokens(kShape, kTokens, 1), rest = slice(kShape, all, kFirst, kTokens - kFirst);
  for (const std::vector<int64_t>& chunks : {std::vector<int64_t>(kTokens, 1), {kTokens}, {3, 60, 67}}) {
    memory::Ledger ledger, plain_ledger;
    const auto cache = build_cache(spec_of("5"), kShape, ledger),
               plain = build_cache(spec_of("0"), kShape, plain_ledger);
    const SequenceId id = cache->add_sequence(), without = plain->add_sequence();
    drive(*cache, id, all, chunks);
    drive(*plain, without, rest, std::vector<int64_t>{kTokens - kFirst});
    for (int head = 0; head < kShape.kv_heads; ++head) {
      const Span first = cache->spans(id, 0, head).front();
      EXPECT_EQ(first.rows, kFirst);
      EXPECT_EQ(encoding_name(first.k.encoding) + encoding_name(first.v.encoding), "f16f16");
      const Stored got = read_back(*cache, id, 0, head), want = read_back(*plain, without, 0, head);
      ASSERT_EQ(got.rows, kTokens);
      for (int64_t row = kFirst; row < kTokens; ++row) {
        ASSERT_EQ(row_of(got.k, row), row_of(want.k, row - kFirst)) << "K of row " << row;
        ASSERT_EQ(row_of(got.v, row), row_of(want.v, row - kFirst)) << "V of row " << row;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Codecs, FirstRows,
    testing::Values("contiguous/fp8(first=0)", "paged/q8_0(first=0)",
                    "paged(block=32)/q4_0(residual=40,first=0)", "concat/token(bits=3,first=0)",
                    "segmented/kivi(residual=0,bits=2,first=0)", "paged(block=32)/kivi(first=0)",
                    "doubling(read=copy)/mxfp8(first=0)", "contiguous/nvfp4(first=0)",
                    "paged/turbo(bits=3,first=0)", "contiguous/split(k=q4_0(first=0),v=turbo(bits=2))"));

TEST(FirstRowsOfRetentions, HaveToBeSinks) {
  const auto reason = [](const char* text) { return unsupported_reason(parse_spec(text)); };
  EXPECT_EQ(reason("paged/q8_0(first=4)/ring(window=64,sinks=4)"), "");
  EXPECT_EQ(
      reason("paged/q8_0(first=5)/ring(window=64,sinks=4)"),
      "first=5 keeps the first rows raw, and retention 'ring' keeps only `sinks` of them: set sinks to 5 "
      "or more");
  EXPECT_EQ(reason("paged/q8_0(first=1)/h2o"),
            "first=1 keeps the first rows raw, and retention 'h2o' puts other tokens' rows in their slots");
  EXPECT_EQ(reason("tiered/q8_0(first=1)"),
            "first=N keeps rows before all others, but tiers read the oldest rows a chunk at a time");
}

}  // namespace
}  // namespace kv
