// Tiers with codecs of their own: a row's bits depend on its age alone, its error lies between two bounds, and
// nothing that a sequence does changes another's rows.
#include <functional>

#include "harness/verify/rows.h"
#include "tests/kernels/format/unit.h"
#include "tests/variants/contract.h"
#include "variants/cache/spec.h"

namespace kv::tier_codecs_test {
namespace {

using namespace contract;

constexpr CacheShape kShape{
    .layers = 1, .q_heads = 4, .kv_heads = 2, .head_dim = 32, .max_tokens = 3000, .max_sequences = 4};
constexpr int64_t kHot = 100, kWarm = 600, kTokens = 2400;

// n tokens in steps of 50, the last one alone.
std::vector<int64_t> steps(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>((n - 1) / 50), 50);
  if ((n - 1) % 50 > 0) all.push_back((n - 1) % 50);
  all.push_back(1);
  return all;
}

Spec spec_of(const std::string& codec, const std::string& tiers) {
  return parse_spec("tiered(hot=" + std::to_string(kHot) + ",warm=" + std::to_string(kWarm) + tiers + ")/" +
                    codec);
}

struct Case {
  std::string codec, tiers;
  std::vector<std::string> passed;  // the codecs of a hot, a warm and a row in the file
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.codec << c.tiers; }

const std::vector<Case> kCases{
    {"f32", ",warm_codec=q8_0,disk_codec=q4_0", {"f32", "q8_0", "q4_0"}},
    {"f16", ",warm_codec=q8_0", {"f16", "q8_0", "q8_0"}},
    {"f16", ",disk_codec=token", {"f16", "f16", "token"}},
    {"q4_0", ",warm_codec=f16,disk_codec=fp8", {"q4_0", "f16", "fp8"}},
    {"split(k=q8_0,v=f16)", ",warm_codec=q8_0,disk_codec=bf16", {"split(k=q8_0,v=f16)", "q8_0", "bf16"}},
};

Codec codec_named(const std::string& name) {
  const Spec spec = parse_spec("contiguous/" + name);
  return codec_of(spec).make(spec.codec);
}

// One row at a time, by the test's own account of where a row of that age lies.
std::vector<float> expected(const Case& c, std::vector<float> row, int64_t index, int64_t rows, bool is_v) {
  const int64_t after = rows - (index / 512 + 1) * 512;  // rows behind its chunk
  const int tier = after >= kHot + kWarm ? 2 : after >= kHot ? 1 : 0;
  std::optional<Encoding> before;
  for (int level = 0; level <= tier; ++level) {
    const Codec codec = codec_named(c.passed[static_cast<size_t>(level)]);
    const Encoding& encoding = is_v ? codec.v : codec.k;
    if (before != encoding) row = test::Unit(encoding, kShape.head_dim, row).decoded();
    before = encoding;
  }
  return row;
}

class TierCodecs : public testing::TestWithParam<Case> {
 protected:
  Spec spec() const { return spec_of(GetParam().codec, GetParam().tiers); }
  void expect_rows(Cache& cache, SequenceId id) const {
    const int d = kShape.head_dim;
    for (int head = 0; head < kShape.kv_heads; ++head) {
      const Stored stored = read_back(cache, id, 0, head);
      ASSERT_EQ(stored.rows, cache.tokens(id, 0));
      for (int64_t row = 0; row < stored.rows; ++row) {
        for (const bool is_v : {false, true}) {
          const float* came = (is_v ? all_.v : all_.k).data() + (head * all_.n + row) * d;
          const float* got = (is_v ? stored.v : stored.k).data() + row * d;
          ASSERT_EQ(std::vector<float>(got, got + d),
                    expected(GetParam(), std::vector<float>(came, came + d), row, stored.rows, is_v))
              << (is_v ? "V" : "K") << " row " << row << " of " << stored.rows;
        }
      }
    }
  }
  const Tokens all_ = make_tokens(kShape, kTokens + 700, 3);
};

TEST_P(TierCodecs, RowsAreWhatTheirTiersMakeOfThem) {
  memory::Ledger ledger;
  const auto cache = build_cache(spec(), kShape, ledger);
  const SequenceId at_once = cache->add_sequence(), in_steps = cache->add_sequence();
  const int64_t n = kTokens;  // from hot to the file at once, without a time in the warm tier
  fill(*cache, at_once, all_, 0, n - 1);
  const auto out = step(*cache, at_once, all_, n - 1, 1);
  expect_rows(*cache, at_once);
  EXPECT_EQ(drive(*cache, in_steps, slice(kShape, all_, 0, n), steps(n)), out);
  expect_rows(*cache, in_steps);
}

TEST_P(TierCodecs, BytesAreTheClosedForms) {
  memory::Ledger ledger;
  const auto cache = build_cache(spec(), kShape, ledger);
  const SequenceId id = cache->add_sequence();
  for (int64_t n = 50; n <= kTokens; n += 50) {
    fill(*cache, id, all_, n - 50, 50);
    ASSERT_EQ(ledger.tiers(), predicted_tiers(spec(), kShape, {&n, 1})) << n;
    ASSERT_EQ(ledger.payload().current_bytes + ledger.metadata().current_bytes,
              predicted_bytes(spec(), kShape, {&n, 1}))
        << n;
  }
  // And they are those of the codecs' own rows: 2400 tokens are 2 chunks in the file, 2 warm, the rest hot.
  const auto chunk = [](const std::string& name) {
    const Codec c = codec_named(name);
    int64_t row = 0;
    for (const Encoding& e : {c.k, c.v}) row += unit_data_bytes(e, 32) + unit_meta_bytes(e, 32);
    return 512 * kShape.kv_heads * row;
  };
  const auto& passed = GetParam().passed;
  const int64_t in_file = (kTokens - kHot - kWarm) / 512, warm = (kTokens - kHot) / 512 - in_file;
  EXPECT_EQ(ledger.tiers(), (TierBytes{.hot = chunk(passed[0]),
                                       .warm = warm * chunk(passed[1]),
                                       .disk = in_file * ((chunk(passed[2]) + 4095) / 4096 * 4096)}));
  cache->release(id);
  EXPECT_EQ(ledger.tiers(), TierBytes());
}

INSTANTIATE_TEST_SUITE_P(Cases, TierCodecs, testing::ValuesIn(kCases));

// The error of rows in a tier is that of its codec, give or take what the codecs before it have left.
TEST(TierError, LiesBetweenTwoBounds) {
  const Spec spec = spec_of("f32", ",warm_codec=q8_0,disk_codec=q4_0");
  memory::Ledger ledger;
  const auto cache = build_cache(spec, kShape, ledger);
  const Tokens all = make_tokens(kShape, kTokens, 5);
  const SequenceId id = cache->add_sequence();
  fill(*cache, id, all, 0, kTokens);
  const Stored stored = read_back(*cache, id, 0, 1);
  const auto error = [&](int64_t first, int64_t last) {
    return relative_l2({stored.k.data() + first * 32, static_cast<size_t>((last - first) * 32)},
                       {all.k.data() + (kTokens + first) * 32, static_cast<size_t>((last - first) * 32)});
  };
  const Interval q8 = codec_named("q8_0").k_error, q4 = codec_named("q4_0").k_error;
  const double disk = error(0, 1536), warm = error(1536, 2048), hot = error(2048, 2400);
  EXPECT_EQ(hot, 0.0);
  EXPECT_GT(warm, q8.low);
  EXPECT_LT(warm, q8.high);
  EXPECT_GT(disk, q4.low - q8.high);
  EXPECT_LT(disk, q4.high + q8.high);
  EXPECT_GT(disk, 4 * warm);
}

// A run verifies this of every cell: by its own account of the tiers, and not blind to them.
TEST(TierVerify, ComparesRowsWithTheirTiersCodecs) {
  const Spec spec = spec_of("f16", ",warm_codec=q8_0,disk_codec=q4_0");
  memory::Ledger ledger;
  const auto cache = build_cache(spec, kShape, ledger);
  const Tokens all = make_tokens(kShape, kTokens, 7);
  const SequenceId id = cache->add_sequence();
  fill(*cache, id, all, 0, kTokens);
  const auto head = [&](const std::vector<float>& rows) {
    return std::vector<float>(rows.begin(), rows.begin() + kTokens * 32);
  };
  verify::HeadRows rows{head(all.k), head(all.v)};
  EXPECT_EQ(verify::misplaced_row(*cache, id, 0, 0, rows), "");
  for (const auto& [token, format] : {std::pair{700, "q4_0"}, {1700, "q8_0"}, {2300, "f16"}}) {
    verify::HeadRows other = rows;
    for (int i = 0; i < 32; ++i) other.v[static_cast<size_t>(token * 32 + i)] *= -1.0f;
    EXPECT_EQ(verify::misplaced_row(*cache, id, 0, 0, other),
              "V of token " + std::to_string(token) + " is not as " + format + " stores it");
  }
}

TEST(TierCodecsRefused, WhereRowsCannotBeEncodedAnew) {
  EXPECT_EQ(unsupported_reason(spec_of("kivi", ",warm_codec=q8_0")),
            "a tier's own codec stores a row at a time, but the cache's encodes groups of 32 rows together");
  EXPECT_EQ(unsupported_reason(spec_of("token(residual=40)", ",disk_codec=q8_0")),
            "a tier's own codec takes rows that are encoded, but the cache's keeps its newest rows raw");
  EXPECT_EQ(unsupported_reason(spec_of("kivi", "")), "");
  EXPECT_EQ(unsupported_reason(spec_of("f16", ",disk_codec=q4_0"), 40),
            unsupported_reason(parse_spec("contiguous/q4_0"), 40));
  EXPECT_NE(unsupported_reason(spec_of("f16", ",disk_codec=q4_0"), 40), "");
  EXPECT_THROW(parse_spec("tiered(warm_codec=kivi)"), std::invalid_argument);
}

}  // namespace
}  // namespace kv::tier_codecs_test
