// The kernels of integer codes against the FP64 oracle on the stored values, on every instruction set of this
// machine: every layout, rows that fill vectors, half of one and several, and every number of queries at
// once.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "harness/reference.h"
#include "kernels/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/encoding.h"

namespace kv {
namespace {

constexpr Encoding token(int bits, bool affine) {
  return {.format = Format::kToken, .bits = static_cast<uint8_t>(bits), .affine = affine};
}
constexpr Encoding channel(int bits) {
  return {.format = Format::kChannel, .bits = static_cast<uint8_t>(bits), .group = 32, .affine = true};
}

struct Codec {
  const char* name;
  Encoding k, v;
};

const Codec kCodecs[] = {
    {"q8_0", {.format = Format::kQ8_0, .bits = 8}, {.format = Format::kQ8_0, .bits = 8}},
    {"q4_0", {.format = Format::kQ4_0, .bits = 4}, {.format = Format::kQ4_0, .bits = 4}},
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

std::vector<float> gaussian(int64_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = normal(rng);
  return x;
}

// K or V of one head. Units lie `gap` bytes apart, and their scales too.
struct Stored {
  Stored(const Encoding& e, const Case& c, unsigned seed, int64_t gap)
      : values(gaussian(c.rows * c.head_dim, seed)) {
    const int64_t units = (c.rows + e.group - 1) / e.group, unit = int64_t{e.group} * c.head_dim;
    side = {.data = nullptr,
            .meta = nullptr,
            .stride = unit_data_bytes(e, c.head_dim) + gap,
            .meta_stride = unit_meta_bytes(e, c.head_dim) + gap,
            .encoding = e};
    values.resize(static_cast<size_t>(units * unit));
    data.resize(static_cast<size_t>(units * side.stride));
    meta.resize(static_cast<size_t>(units * side.meta_stride));
    side.data = data.data();
    side.meta = meta.data();
    for (int64_t u = 0; u < units; ++u)
      encode_unit(e, c.head_dim, &values[static_cast<size_t>(u * unit)],
                  &data[static_cast<size_t>(u * side.stride)],
                  &meta[static_cast<size_t>(u * side.meta_stride)]);
    decode_rows(side, c.head_dim, 0, c.rows, values.data());  // what attention should see
  }
  std::vector<float> values;
  std::vector<std::byte> data, meta;
  Side side;
};

std::vector<float> attended(const Case& c, std::span<const Span> spans, const std::vector<float>& q) {
  std::vector<float> out(q.size());
  const HeadQueries problem{
      .q = q.data(), .out = out.data(), .spans = spans, .group = c.group, .visible = c.rows};
  const size_t bytes = attention_workspace_bytes({&problem, 1}, c.head_dim);
  const std::unique_ptr<std::byte, void (*)(void*)> workspace(
      static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), std::free);
  attend({&problem, 1}, c.head_dim, workspace.get());
  return out;
}

double relative_error(const Case& c, const Stored& k, const Stored& v, const std::vector<float>& q,
                      const std::vector<float>& out) {
  const auto count = static_cast<size_t>(c.rows * c.head_dim);
  double error = 0.0, norm = 0.0;
  for (int r = 0; r < c.group; ++r) {
    const size_t at = static_cast<size_t>(r) * static_cast<size_t>(c.head_dim);
    const auto want = reference::attend({q.data() + at, static_cast<size_t>(c.head_dim)},
                                        std::span<const float>(k.values).first(count),
                                        std::span<const float>(v.values).first(count), c.rows)
                          .out;
    for (int d = 0; d < c.head_dim; ++d) {
      const double difference = static_cast<double>(out[at + static_cast<size_t>(d)]) - want[d];
      error += difference * difference;
      norm += want[d] * want[d];
    }
  }
  return std::sqrt(error / norm);
}

struct Codes : testing::TestWithParam<std::string> {
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa("auto"); }
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, Codes, testing::ValuesIn(available_isas()),
                         [](const auto& isa) { return isa.param; });

// Queries and weights of 16 bits: the error is theirs. With 8 bits it would be some 1e-2.
TEST_P(Codes, AgreeWithFp64) {
  for (const Codec& codec : kCodecs) {
    for (const Case& c : kCases) {
      const Stored k(codec.k, c, 1, 0), v(codec.v, c, 2, 0);
      const auto q = gaussian(int64_t{c.group} * c.head_dim, 3);
      const Span span{.k = k.side, .v = v.side, .rows = c.rows};
      EXPECT_LT(relative_error(c, k, v, q, attended(c, {&span, 1}, q)), 2e-4)
          << codec.name << " group " << c.group << " head_dim " << c.head_dim << " rows " << c.rows;
    }
  }
}

// Scales that follow each other are read many at a time, others one by one.
TEST_P(Codes, WhereRowsLieChangesNoBit) {
  for (const Codec& codec : kCodecs) {
    for (const Case& c : kCases) {
      const auto q = gaussian(int64_t{c.group} * c.head_dim, 3);
      const Stored k(codec.k, c, 1, 0), v(codec.v, c, 2, 0);
      const Span whole{.k = k.side, .v = v.side, .rows = c.rows};
      const auto want = attended(c, {&whole, 1}, q);
      const Stored far_k(codec.k, c, 1, 24), far_v(codec.v, c, 2, 24);
      std::vector<Span> cut;
      const int64_t step = 32;
      for (int64_t row = 0; row < c.rows; row += step) {
        const auto moved = [&](Side side) {
          side.data += row / side.encoding.group * side.stride;
          side.meta += row / side.encoding.group * side.meta_stride;
          return side;
        };
        cut.push_back({.k = moved(far_k.side), .v = moved(far_v.side), .rows = std::min(step, c.rows - row)});
      }
      const auto got = attended(c, cut, q);
      EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
          << codec.name << " group " << c.group << " head_dim " << c.head_dim << " rows " << c.rows;
    }
  }
}

TEST_P(Codes, ThreadsChangeNoBit) {
  const int threads = omp_get_max_threads();
  const Case c{4, 128, 1700};
  for (const Codec& codec : kCodecs) {
    const Stored k(codec.k, c, 1, 0), v(codec.v, c, 2, 0);
    const Span span{.k = k.side, .v = v.side, .rows = c.rows};
    const auto q = gaussian(int64_t{c.group} * c.head_dim, 3);
    omp_set_num_threads(1);
    const auto one = attended(c, {&span, 1}, q);
    omp_set_num_threads(3);
    const auto three = attended(c, {&span, 1}, q);
    omp_set_num_threads(threads);
    EXPECT_EQ(std::memcmp(one.data(), three.data(), one.size() * sizeof(float)), 0) << codec.name;
  }
}

}  // namespace
}  // namespace kv
