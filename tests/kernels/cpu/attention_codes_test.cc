// The kernels of integer codes against the FP64 oracle on the stored values, on every instruction set of this
// machine: every layout, rows that fill vectors, half of one and several, and every number of queries at
// once.
#include "tests/kernels/cpu/attention_support.h"

namespace kv::attention_codes_test {
namespace {

using namespace test;

struct Codec {
  const char* name;
  Encoding k, v;
};

const Codec kCodecs[] = {
    {"q8_0", kQ8, kQ8},
    {"q4_0", kQ4, kQ4},
    {"token8", token(8, false), token(8, false)},
    {"token4", token(4, true), token(4, false)},
    {"token2", token(2, false), token(2, true)},
    {"kivi8", channel(8), token(8, true)},
    {"kivi4", channel(4), token(4, true)},
    {"kivi2", channel(2), token(2, true)},
};

struct Case {
  int group, head_dim;
  int64_t rows;
};

// 96: blocks that fill no group of four; 7 queries: blocks of 4, 2 and 1; 37 rows: a unit and a part of one.
const Case kCases[] = {{1, 128, 513}, {4, 128, 200}, {2, 64, 130},  {7, 128, 96}, {4, 64, 37}, {1, 256, 75},
                       {4, 256, 65},  {3, 192, 70},  {1, 512, 130}, {4, 32, 129}, {4, 96, 77}};

StoredRows rows_of(const Codec& codec, const Case& c, int64_t gap = 0) {
  return {codec.k, codec.v, c.head_dim, c.rows, gap};
}

std::vector<float> queries(const Case& c) { return gaussian(int64_t{c.group} * c.head_dim, 3); }

std::string describe(const Codec& codec, const Case& c) {
  return std::string(codec.name) + " group " + std::to_string(c.group) + " head_dim " +
         std::to_string(c.head_dim) + " rows " + std::to_string(c.rows);
}

using Codes = EveryIsa;
INSTANTIATE_TEST_SUITE_P(EveryIsa, Codes, every_isa(), isa_name);

// Queries and weights of 16 bits: the error is theirs. With 8 bits it would be some 1e-2.
TEST_P(Codes, AgreeWithFp64) {
  for (const Codec& codec : kCodecs) {
    for (const Case& c : kCases) {
      const StoredRows rows = rows_of(codec, c);
      const auto q = queries(c);
      const auto want = attended_fp64(rows.k.decoded(), rows.v.decoded(), c.head_dim, q);
      EXPECT_LT(relative_error(attended(rows.whole, c.head_dim, q), want), 2e-4) << describe(codec, c);
    }
  }
}

// Scales that follow each other are read many at a time, others one by one.
TEST_P(Codes, WhereRowsLieChangesNoBit) {
  for (const Codec& codec : kCodecs) {
    for (const Case& c : kCases) {
      const StoredRows close = rows_of(codec, c), far = rows_of(codec, c, 24);
      const auto q = queries(c);
      expect_same_bits(attended(far.cut(32), c.head_dim, q), attended(close.whole, c.head_dim, q),
                       describe(codec, c));
    }
  }
}

TEST_P(Codes, ThreadsChangeNoBit) {
  const Case c{4, 128, 1700};
  const auto q = queries(c);
  for (const Codec& codec : kCodecs) {
    const StoredRows rows = rows_of(codec, c);
    expect_threads_change_no_bit([&] { return attended(rows.whole, c.head_dim, q); }, codec.name);
  }
}

}  // namespace
}  // namespace kv::attention_codes_test
