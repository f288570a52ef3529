// Attention with queries and weights of 8 bits (Arithmetic::kInt8): every instruction set against the plain loops of
// int8_scalar.cc, and both sides of its error against FP64 on the stored rows.
#include <omp.h>

#include "kernels/format/descriptor.h"
#include "tests/kernels/cpu/attention_support.h"

namespace kv::attention_int8_test {
namespace {

using namespace test;

constexpr Encoding kQ8{.format = Format::kQ8_0, .bits = 8}, kQ4{.format = Format::kQ4_0, .bits = 4};
constexpr Encoding kF16{.format = Format::kF16, .bits = 16};

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
  std::vector<float> out(q.size(), NAN);
  int64_t rows = 0;
  for (const Span& span : spans) rows += span.rows;
  const HeadQueries problem{.q = q.data(),
                            .out = out.data(),
                            .spans = spans,
                            .group = c.group,
                            .n = c.n,
                            .visible = rows - c.n + 1,
                            .arithmetic = Arithmetic::kInt8};
  run_attention({&problem, 1}, c.head_dim);
  return out;
}

struct Rows {
  explicit Rows(const Case& c, int64_t gap = 0)
      : k(c.k, c.head_dim, gaussian(c.rows * c.head_dim, 1), gap),
        v(c.v, c.head_dim, gaussian(c.rows * c.head_dim, 2), gap),
        span{.k = k.side, .v = v.side, .rows = c.rows} {}
  Stored k, v;
  Span span;
};

std::vector<float> queries(const Case& c, float deviation = 1.0f) {
  return gaussian(c.group * c.n * c.head_dim, 3, deviation);
}

std::string describe(const Case& c) {
  return std::to_string(c.k.bits) + "/" + std::to_string(c.v.bits) + " bits, group " +
         std::to_string(c.group) + ", head_dim " + std::to_string(c.head_dim) + ", rows " +
         std::to_string(c.rows);
}

double distance(const std::vector<float>& got, const std::vector<float>& want) {
  return relative_error(got, std::vector<double>(want.begin(), want.end()));
}

using Int8 = EveryIsa;
INSTANTIATE_TEST_SUITE_P(EveryIsa, Int8, every_isa(), isa_name);

// f32 rounds sums, and an exponential's last bit may move a weight's code by one.
TEST_P(Int8, IsThatOfPlainLoops) {
  for (const Case& c : kCases) {
    const Rows rows(c);
    const auto q = queries(c, 2.0f);
    const auto got = attended_int8({&rows.span, 1}, c, q);
    cpu::force_isa("scalar");
    const auto want = attended_int8({&rows.span, 1}, c, q);
    cpu::force_isa(GetParam());
    EXPECT_LT(distance(got, want), 2e-5) << describe(c);
  }
}

// Two-sided: 8 bits cannot be as good as 16, and stay within what is stated.
TEST_P(Int8, ErrorIsThatOf8Bits) {
  for (const Case& c : kCases) {
    const Rows rows(c);
    const auto q = queries(c);
    const auto want = attended_fp64(rows.k.decoded(), rows.v.decoded(), c.head_dim, q, c.n);
    const double exact = relative_error(attended({&rows.span, 1}, c.head_dim, q, c.n), want);
    const double error = relative_error(attended_int8({&rows.span, 1}, c, q), want);
    EXPECT_GT(error, 10 * exact) << describe(c);
    EXPECT_GT(error, 2e-3) << describe(c);
    EXPECT_LT(error, 3e-2) << describe(c);
    EXPECT_LT(error, attention_error_bound(c.k, c.v, Arithmetic::kInt8));
  }
}

TEST_P(Int8, WhereRowsLieChangesNoBit) {
  for (const Case& c : kCases) {
    const Rows close(c), far(c, 24);
    const auto q = queries(c);
    std::vector<Span> cut;
    for (int64_t row = 0; row < c.rows; row += 16) {
      const auto moved = [&](Side side) {
        side.data += row * side.stride;
        side.meta += row * side.meta_stride;
        return side;
      };
      cut.push_back({moved(far.k.side), moved(far.v.side), std::min<int64_t>(16, c.rows - row)});
    }
    expect_same_bits(attended_int8(cut, c, q), attended_int8({&close.span, 1}, c, q), describe(c));
  }
}

TEST_P(Int8, ThreadsChangeNoBit) {
  const int threads = omp_get_max_threads();
  for (const Encoding& e : {kQ8, kQ4}) {
    const Case c{e, e, 4, 128, 1700};
    const Rows rows(c);
    const auto q = queries(c);
    omp_set_num_threads(1);
    const auto one = attended_int8({&rows.span, 1}, c, q);
    omp_set_num_threads(3);
    const auto three = attended_int8({&rows.span, 1}, c, q);
    omp_set_num_threads(threads);
    expect_same_bits(one, three, describe(c));
  }
}

// Rows that a codec keeps raw are multiplied as they are, beside coded ones.
TEST_P(Int8, RawRowsBesideCodedOnes) {
  const Case c{kQ4, kQ4, 2, 128, 0};
  StoredHead head(c.head_dim);
  head.store.reserve(4);
  head.add(kQ4, kQ4, gaussian(100 * 128, 1), gaussian(100 * 128, 2));
  head.add(kF16, kF16, gaussian(50 * 128, 4), gaussian(50 * 128, 5));
  const auto q = queries(c);
  const auto got = attended_int8(head.spans, c, q);
  cpu::force_isa("scalar");
  const auto want = attended_int8(head.spans, c, q);
  cpu::force_isa(GetParam());
  EXPECT_LT(distance(got, want), 2e-5);
}

// A step of many tokens is a prefill: no bit of it differs.
TEST_P(Int8, PrefillStaysExact) {
  const Case c{kQ8, kQ8, 1, 64, 100, kPrefillTokens};
  const Rows rows(c);
  const auto q = queries(c);
  expect_same_bits(attended_int8({&rows.span, 1}, c, q), attended({&rows.span, 1}, c.head_dim, q, c.n),
                   "prefill");
}

}  // namespace
}  // namespace kv::attention_int8_test
