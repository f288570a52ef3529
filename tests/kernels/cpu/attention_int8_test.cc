// Attention with queries and weights of 8 bits (Arithmetic::kInt8): every instruction set against the plain loops of
// int8_scalar.cc, and both sides of its error against FP64 on the stored rows.
#include "kernels/format/descriptor.h"
#include "tests/kernels/cpu/attention_support.h"

namespace kv::attention_int8_test {
namespace {

using namespace test;

struct Case {
  Encoding k, v;
  int group, head_dim;
  int64_t rows;
  int64_t n = 1;
};

// Rows of one vector, half of one and several; blocks that fill no group of four; 7 queries: 4, 2 and 1.
const Case kCases[] = {{kQ8, kQ8, 1, 128, 513}, {kQ8, kQ8, 4, 128, 200}, {kQ8, kQ8, 2, 64, 130},
                       {kQ8, kQ8, 7, 96, 77},   {kQ8, kQ8, 3, 256, 65},  {kQ8, kQ8, 4, 32, 129},
                       {kQ8, kQ8, 1, 576, 70},  {kQ8, kQ4, 4, 128, 90},  {kQ4, kQ4, 1, 128, 513},
                       {kQ4, kQ4, 4, 128, 200}, {kQ4, kQ4, 2, 64, 130},  {kQ4, kQ4, 7, 96, 77},
                       {kQ4, kQ4, 3, 256, 65},  {kQ4, kQ4, 4, 32, 129},  {kQ4, kQ8, 2, 192, 70, 3}};

std::vector<float> attended_int8(std::span<const Span> spans, const Case& c, const std::vector<float>& q) {
  return attended(spans, c.head_dim, q, c.n, {.spans = {}, .arithmetic = Arithmetic::kInt8});
}

StoredRows rows_of(const Case& c, int64_t gap = 0) { return {c.k, c.v, c.head_dim, c.rows, gap}; }

std::vector<float> queries(const Case& c, float deviation = 1.0f) {
  return gaussian(c.group * c.n * c.head_dim, 3, deviation);
}

std::string describe(const Case& c) {
  return std::to_string(c.k.bits) + "/" + std::to_string(c.v.bits) + " bits, group " +
         std::to_string(c.group) + ", head_dim " + std::to_string(c.head_dim) + ", rows " +
         std::to_string(c.rows);
}

using Int8 = EveryIsa;
INSTANTIATE_TEST_SUITE_P(EveryIsa, Int8, every_isa(), isa_name);

// The distance from plain loops. f32 rounds sums, and an exponential's last bit may move a weight's code by one.
double from_plain_loops(std::span<const Span> spans, const Case& c, const std::vector<float>& q,
                        const std::string& isa) {
  const auto got = attended_int8(spans, c, q);
  cpu::force_isa("scalar");
  const auto want = attended_int8(spans, c, q);
  cpu::force_isa(isa);
  return relative_error(got, {want.begin(), want.end()});
}

TEST_P(Int8, IsThatOfPlainLoops) {
  for (const Case& c : kCases)
    EXPECT_LT(from_plain_loops(rows_of(c).whole, c, queries(c, 2.0f), GetParam()), 2e-5) << describe(c);
}

// Two-sided: 8 bits cannot be as good as 16, and stay within what is stated.
TEST_P(Int8, ErrorIsThatOf8Bits) {
  for (const Case& c : kCases) {
    const StoredRows rows = rows_of(c);
    const auto q = queries(c);
    const auto want = attended_fp64(rows.k.decoded(), rows.v.decoded(), c.head_dim, q, c.n);
    const double exact = relative_error(attended(rows.whole, c.head_dim, q, c.n), want);
    const double error = relative_error(attended_int8(rows.whole, c, q), want);
    EXPECT_GT(error, 10 * exact) << describe(c);
    EXPECT_GT(error, 2e-3) << describe(c);
    EXPECT_LT(error, 3e-2) << describe(c);
    EXPECT_LT(error, attention_error_bound(c.k, c.v, Arithmetic::kInt8));
  }
}

TEST_P(Int8, WhereRowsLieChangesNoBit) {
  for (const Case& c : kCases) {
    const StoredRows close = rows_of(c), far = rows_of(c, 24);
    const auto q = queries(c);
    expect_same_bits(attended_int8(far.cut(16), c, q), attended_int8(close.whole, c, q), describe(c));
  }
}

TEST_P(Int8, ThreadsChangeNoBit) {
  for (const Encoding& e : {kQ8, kQ4}) {
    const Case c{e, e, 4, 128, 1700};
    const StoredRows rows = rows_of(c);
    const auto q = queries(c);
    expect_threads_change_no_bit([&] { return attended_int8(rows.whole, c, q); }, describe(c));
  }
}

// Rows that a codec keeps raw are multiplied as they are, beside coded ones.
TEST_P(Int8, RawRowsBesideCodedOnes) {
  const Case c{kQ4, kQ4, 2, 128, 0};
  StoredHead head(c.head_dim);
  head.store.reserve(4);
  head.add(kQ4, gaussian(100 * 128, 1), gaussian(100 * 128, 2));
  head.add(kF16, gaussian(50 * 128, 4), gaussian(50 * 128, 5));
  EXPECT_LT(from_plain_loops(head.spans, c, queries(c), GetParam()), 2e-5);
}

// A step of many tokens is a prefill: no bit of it differs.
TEST_P(Int8, PrefillStaysExact) {
  const Case c{kQ8, kQ8, 1, 64, 100, kPrefillTokens};
  const StoredRows rows = rows_of(c);
  const auto q = queries(c);
  expect_same_bits(attended_int8(rows.whole, c, q), attended(rows.whole, c.head_dim, q, c.n), "prefill");
}

}  // namespace
}  // namespace kv::attention_int8_test
