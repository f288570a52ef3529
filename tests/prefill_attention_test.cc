// Prefill's tiled attention against FP64 on the stored rows, and against itself: however rows are cut into
// spans, prompts into chunks and work into tasks, on every instruction set of this machine.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "harness/reference.h"
#include "kernels/attention.h"
#include "kernels/cpu/isa.h"
#include "kernels/encoding.h"

namespace kv {
namespace {

constexpr Encoding kF32{};

// A step of n tokens, the last of `rows` rows.
struct Case {
  int group, head_dim;
  int64_t rows, n;
  Encoding k = kF32, v = kF32;
};

std::vector<float> gaussian(int64_t count, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = normal(rng);
  return values;
}

// One side of a span, in memory of its own so that the sanitizers see a read past its end.
struct Stored {
  Stored(const Encoding& e, int head_dim, const float* rows, int64_t count) : encoding(e) {
    const int64_t units = (count + e.group - 1) / e.group;
    stride = unit_data_bytes(e, head_dim);
    meta_stride = unit_meta_bytes(e, head_dim);
    data = std::make_unique<std::byte[]>(static_cast<size_t>(units * stride));
    meta = std::make_unique<std::byte[]>(static_cast<size_t>(units * meta_stride));
    for (int64_t unit = 0; unit < units; ++unit) {
      encode_unit(e, head_dim, rows + unit * e.group * head_dim, data.get() + unit * stride,
                  meta.get() + unit * meta_stride);
    }
  }
  Side side() const {
    return {.data = data.get(),
            .meta = meta_stride ? meta.get() : nullptr,
            .stride = stride,
            .meta_stride = meta_stride,
            .encoding = encoding};
  }
  Encoding encoding;
  int64_t stride, meta_stride;
  std::unique_ptr<std::byte[]> data, meta;
};

// One kv head's rows, encoded in spans of `span_rows` rows (of as many units where units are of several), and
// behind the last full unit in f32, as caches hold them.
struct Rows {
  Rows(const Case& c, int64_t span_rows)
      : Rows(c, span_rows, gaussian(c.rows * c.head_dim, 1), gaussian(c.rows * c.head_dim, 2)) {}
  Rows(const Case& c, int64_t span_rows, const std::vector<float>& keys, const std::vector<float>& values)
      : k(keys), v(values) {
    const int64_t unit = std::max(c.k.group, c.v.group), full = c.rows / unit * unit;
    for (int64_t row = 0; row < full; row += span_rows * unit)
      add(c, c.k, c.v, row, std::min(span_rows * unit, full - row));
    if (full < c.rows) add(c, kF32, kF32, full, c.rows - full);
  }
  std::vector<float> k, v;  // as stored
  std::vector<Stored> store;
  std::vector<Span> spans;

 private:
  void add(const Case& c, const Encoding& ke, const Encoding& ve, int64_t row, int64_t count) {
    float *keys = k.data() + row * c.head_dim, *values = v.data() + row * c.head_dim;
    const Stored& stored_k = store.emplace_back(ke, c.head_dim, keys, count);
    const Side k_side = stored_k.side();
    const Side v_side = store.emplace_back(ve, c.head_dim, values, count).side();
    spans.push_back({k_side, v_side, count});
    decode_rows(k_side, c.head_dim, 0, count, keys);
    decode_rows(v_side, c.head_dim, 0, count, values);
  }
};

// Runs the problem in a workspace of just the bytes that were asked for.
void run(const HeadQueries& problem, int head_dim) {
  const size_t bytes = attention_workspace_bytes({&problem, 1}, head_dim), guard = 64;
  const std::unique_ptr<std::byte[], void (*)(void*)> workspace(
      static_cast<std::byte*>(std::aligned_alloc(64, bytes + guard)), std::free);
  std::memset(workspace.get(), 0xa5, bytes + guard);  // what is not written first must not be read
  attend({&problem, 1}, head_dim, workspace.get());
  for (size_t i = bytes; i < bytes + guard; ++i) ASSERT_EQ(workspace[i], std::byte{0xa5});
}

std::vector<float> run(const Case& c, const Rows& rows, const std::vector<float>& q) {
  std::vector<float> out(q.size(), NAN);
  run({.q = q.data(),
       .out = out.data(),
       .spans = rows.spans,
       .group = c.group,
       .n = c.n,
       .visible = c.rows - c.n + 1},
      c.head_dim);
  return out;
}

std::vector<float> queries(const Case& c) { return gaussian(c.group * c.n * c.head_dim, 3); }

// Of all outputs together.
double relative_error(const Case& c, const Rows& rows, const std::vector<float>& q,
                      const std::vector<float>& out) {
  const auto d = static_cast<size_t>(c.head_dim);
  const std::span<const float> k(rows.k), v(rows.v);
  double error = 0.0, norm = 0.0;
  for (int64_t r = 0; r < c.group * c.n; ++r) {
    const int64_t seen = c.rows - c.n + 1 + r % c.n;
    const size_t at = static_cast<size_t>(r) * d, size = static_cast<size_t>(seen) * d;
    const auto want = reference::attend({q.data() + at, d}, k.first(size), v.first(size), seen).out;
    for (size_t i = 0; i < d; ++i) {
      const double difference = double{out[at + i]} - want[static_cast<Eigen::Index>(i)];
      error += difference * difference;
      norm += want[static_cast<Eigen::Index>(i)] * want[static_cast<Eigen::Index>(i)];
    }
  }
  return std::sqrt(error / norm);
}

constexpr Encoding token(uint8_t bits, bool affine) { return {Format::kToken, bits, 1, affine}; }
constexpr Encoding channel(uint8_t bits) { return {Format::kChannel, bits, 32, true}; }
constexpr Encoding kF16{Format::kF16, 16}, kBf16{Format::kBf16, 16}, kE4M3{Format::kFp8E4M3, 8},
    kE5M2{Format::kFp8E5M2, 8}, kQ8{Format::kQ8_0, 8}, kQ4{Format::kQ4_0, 4};

// Tokens around the panels of 32, rows around the tiles of 64, groups around the 8 panels of a task.
const Case kCases[] = {
    {1, 64, 32, 32},
    {1, 64, 33, 33},
    {2, 80, 130, 64},
    {4, 128, 200, 65},
    {3, 256, 191, 63},
    {9, 64, 100, 40},
    {17, 8, 70, 35},
    {1, 64, 600, 300},
    {1, 512, 70, 33},
    {2, 24, 1100, 96},
    {2, 80, 130, 100, kF16, kF16},
    {2, 64, 130, 100, kBf16, kBf16},
    {2, 64, 130, 100, kE4M3, kE5M2},
    {2, 128, 130, 100, kQ8, kQ4},
    {2, 256, 130, 33, kQ4, kQ8},
    {2, 64, 130, 100, token(8, false), token(8, true)},
    {2, 128, 130, 100, token(4, true), token(4, false)},
    {2, 80, 130, 100, token(5, true), token(2, true)},
    {4, 64, 150, 100, channel(4), token(4, true)},
    {1, 128, 223, 70, channel(2), token(2, true)},
};

std::string describe(const Case& c) {
  return "group " + std::to_string(c.group) + ", head_dim " + std::to_string(c.head_dim) + ", rows " +
         std::to_string(c.rows) + ", n " + std::to_string(c.n) + ", " + encodings_name(c.k, c.v);
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

class Prefill : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa("auto"); }
};
INSTANTIATE_TEST_SUITE_P(EveryIsa, Prefill, testing::ValuesIn(available_isas()),
                         [](const auto& parameter) { return parameter.param; });

TEST_P(Prefill, AgreesWithFp64) {
  for (const Case& c : kCases) {
    const Rows rows(c, c.rows);
    const std::vector<float> q = queries(c);
    const double error = relative_error(c, rows, q, run(c, rows, q));
    EXPECT_LT(error, 1e-6) << describe(c);
    EXPECT_GT(error, 1e-9) << describe(c) << ": too good for f32";
  }
}

TEST_P(Prefill, SpanBordersChangeNoBit) {
  for (const Case& c : kCases) {
    const std::vector<float> q = queries(c);
    const std::vector<float> whole = run(c, Rows(c, c.rows), q);
    for (const int64_t span_rows : {1, 7, 64, 65})
      expect_same_bits(run(c, Rows(c, span_rows), q), whole,
                       describe(c) + " in " + std::to_string(span_rows));
  }
}

TEST_P(Prefill, ThreadsChangeNoBit) {
  const int threads = omp_get_max_threads();
  for (const Case& c : kCases) {
    const Rows rows(c, 50);
    const std::vector<float> q = queries(c);
    omp_set_num_threads(1);
    const std::vector<float> one = run(c, rows, q);
    omp_set_num_threads(3);
    expect_same_bits(run(c, rows, q), one, describe(c));
    omp_set_num_threads(threads);
  }
}

// A prompt in chunks, each on the rows of those before it, has the bits of the whole one.
TEST_P(Prefill, ChunksChangeNoBit) {
  if (GetParam() == "scalar") GTEST_SKIP() << "the scalar path is not tiled";
  const Case whole{2, 64, 300, 300};
  const Rows rows(whole, 33);
  const std::vector<float> q = queries(whole), want = run(whole, rows, q);
  for (const int64_t chunk : {32, 50, 100, 260}) {
    for (int64_t first = 0; first + kPrefillTokens <= whole.n; first += chunk) {
      const Case part{whole.group, whole.head_dim, std::min(first + chunk, whole.n),
                      std::min(chunk, whole.n - first)};
      std::vector<float> part_q, part_want;
      for (int g = 0; g < whole.group; ++g) {
        const int64_t from = (g * whole.n + first) * whole.head_dim, to = from + part.n * whole.head_dim;
        part_q.insert(part_q.end(), q.begin() + from, q.begin() + to);
        part_want.insert(part_want.end(), want.begin() + from, want.begin() + to);
      }
      expect_same_bits(run(part, rows, part_q), part_want, std::to_string(chunk));
    }
  }
}

// A row that is not finite shows in every token that sees it, and in no other.
TEST_P(Prefill, DamageShowsWhereItIsSeen) {
  if (GetParam() == "scalar") GTEST_SKIP() << "the scalar path is not tiled";
  const Case c{2, 64, 180, 100};
  const std::vector<float> q = queries(c), good = run(c, Rows(c, c.rows), q);
  for (const int64_t bad : {3, 85, 130, 179}) {
    for (const bool in_keys : {true, false}) {
      std::vector<float> k = gaussian(c.rows * c.head_dim, 1), v = gaussian(c.rows * c.head_dim, 2);
      for (int i = 0; i < c.head_dim; ++i) (in_keys ? k : v)[static_cast<size_t>(bad * c.head_dim + i)] = NAN;
      const std::vector<float> out = run(c, Rows(c, c.rows, k, v), q);
      for (size_t i = 0; i < out.size(); ++i) {
        const int64_t token = static_cast<int64_t>(i) / c.head_dim % c.n;
        if (c.rows - c.n + token >= bad) {
          ASSERT_TRUE(std::isnan(out[i])) << "row " << bad << ", token " << token;
        } else {
          ASSERT_EQ(out[i], good[i]) << "row " << bad << ", token " << token;
        }
      }
    }
  }
}

// Two rows, of which the second one's score is less by x: its weight is exp(-x) of the first one's.
TEST_P(Prefill, ExponentialIsWithinAFewUnitsInTheLastPlace) {
  const Case c{1, 8, 33, 32};
  std::vector<float> k(static_cast<size_t>(c.rows * c.head_dim)), v(k.size());
  for (int64_t row = 0; row < c.rows; ++row) k[static_cast<size_t>(row * c.head_dim + 1)] = -1000.0f;
  k[1] = k[9] = 0.0f;
  k[8] = -1.0f;
  v[0] = v[9] = 1.0f;
  const Rows rows(c, c.rows, k, v);
  for (float x = 0.0f; x < 80.0f; x += 0.37f) {
    std::vector<float> q(static_cast<size_t>(c.n * c.head_dim));
    for (int64_t t = 0; t < c.n; ++t) {
      q[static_cast<size_t>(t * c.head_dim)] = x * std::sqrt(8.0f);
      q[static_cast<size_t>(t * c.head_dim + 1)] = 1.0f;  // all other rows' scores are -1000 / sqrt(8)
    }
    const std::vector<float> out = run(c, rows, q);
    const double want = std::exp(-double{q[0]} / std::sqrt(8.0));
    // The score itself is rounded twice, relatively: so its exponential is off by as much times x.
    EXPECT_NEAR(double{out[1]} / double{out[0]}, want, want * (4.0 + 2.0 * double{x}) * 0x1p-24) << x;
  }
}

TEST_P(Prefill, IsWhatRunsFromThatManyTokensOn) {
  const bool tiled = GetParam() != "scalar";
  EXPECT_EQ(attention_kernel_name(kF16, kF16, kPrefillTokens),
            GetParam() + (tiled ? "/prefill/f16" : "/f16"));
  EXPECT_EQ(attention_kernel_name(kF16, kF16, kPrefillTokens - 1), GetParam() + "/f16");
}

// A step of several sequences: prompts of different lengths beside tokens being decoded.
TEST_P(Prefill, MixesWithDecoding) {
  const Case cases[] = {{2, 64, 700, 1}, {2, 64, 90, 90}, {2, 64, 300, 1}, {2, 64, 500, 40}, {2, 64, 33, 33}};
  std::vector<Rows> rows;
  std::vector<std::vector<float>> q, out;
  std::vector<HeadQueries> problems;
  for (const Case& c : cases) {
    rows.emplace_back(c, 64);
    q.push_back(queries(c));
    out.emplace_back(q.back().size());
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    problems.push_back({.q = q[i].data(),
                        .out = out[i].data(),
                        .spans = rows[i].spans,
                        .group = cases[i].group,
                        .n = cases[i].n,
                        .visible = cases[i].rows - cases[i].n + 1});
  }
  const size_t bytes = attention_workspace_bytes(problems, 64);
  const std::unique_ptr<std::byte[], void (*)(void*)> workspace(
      static_cast<std::byte*>(std::aligned_alloc(64, bytes)), std::free);
  attend(problems, 64, workspace.get());
  for (size_t i = 0; i < rows.size(); ++i)
    expect_same_bits(out[i], run(cases[i], rows[i], q[i]), describe(cases[i]));
}

}  // namespace
}  // namespace kv
