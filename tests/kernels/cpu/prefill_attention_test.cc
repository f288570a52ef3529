// Prefill's tiled attention against FP64 on the stored rows, and against itself: however rows are cut into
// spans, prompts into chunks and work into tasks, on every instruction set of this machine.
#include "tests/kernels/cpu/attention_support.h"

namespace kv {
namespace {

using namespace test;

// A step of n tokens, the last of `rows` rows.
struct Case {
  int group, head_dim;
  int64_t rows, n;
  Encoding k = kF32, v = kF32;
};

// One kv head's rows, encoded in spans of `span_rows` rows (of as many units where units are of several), and
// behind the last full unit in f32, as caches hold them.
struct Rows : StoredHead {
  Rows(const Case& c, int64_t span_rows)
      : Rows(c, span_rows, gaussian(c.rows * c.head_dim, 1), gaussian(c.rows * c.head_dim, 2)) {}
  Rows(const Case& c, int64_t span_rows, const std::vector<float>& keys, const std::vector<float>& values)
      : StoredHead(c.head_dim) {
    const int64_t unit = std::max(c.k.group, c.v.group), full = c.rows / unit * unit;
    const auto piece = [&](const std::vector<float>& rows, int64_t first, int64_t count) {
      return std::span(rows).subspan(static_cast<size_t>(first * c.head_dim),
                                     static_cast<size_t>(count * c.head_dim));
    };
    for (int64_t row = 0; row < full; row += span_rows * unit) {
      const int64_t count = std::min(span_rows * unit, full - row);
      add(c.k, c.v, piece(keys, row, count), piece(values, row, count));
    }
    if (full < c.rows) {
      const int64_t count = c.rows - full;
      add(kF32, piece(keys, full, count), piece(values, full, count));
    }
  }
};

std::vector<float> run(const Case& c, const Rows& rows, const std::vector<float>& q) {
  std::vector<float> out;
  HeadQueries problem = problem_of(rows.spans, c.head_dim, q, c.n, out);
  problem.visible = c.rows - c.n + 1;  // the case may end before the rows do
  run_attention({&problem, 1}, c.head_dim);
  return out;
}

std::vector<float> queries(const Case& c) { return gaussian(c.group * c.n * c.head_dim, 3); }

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
    {2, 64, 130, 100, kFp8E4M3, kFp8E5M2},
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

using Prefill = EveryIsa;
INSTANTIATE_TEST_SUITE_P(EveryIsa, Prefill, every_isa(), isa_name);

TEST_P(Prefill, AgreesWithFp64) {
  for (const Case& c : kCases) {
    const Rows rows(c, c.rows);
    const std::vector<float> q = queries(c);
    const double error = relative_error(run(c, rows, q), attended_fp64(rows.k, rows.v, c.head_dim, q, c.n));
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
  for (const Case& c : kCases) {
    const Rows rows(c, 50);
    const std::vector<float> q = queries(c);
    expect_threads_change_no_bit([&] { return run(c, rows, q); }, describe(c));
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
  std::vector<std::vector<float>> q, out(std::size(cases));
  std::vector<HeadQueries> problems;
  for (const Case& c : cases) {
    rows.emplace_back(c, 64);
    q.push_back(queries(c));
  }
  for (size_t i = 0; i < rows.size(); ++i)
    problems.push_back(problem_of(rows[i].spans, 64, q[i], cases[i].n, out[i]));
  run_attention(problems, 64);
  for (size_t i = 0; i < rows.size(); ++i)
    expect_same_bits(out[i], run(cases[i], rows[i], q[i]), describe(cases[i]));
}

}  // namespace
}  // namespace kv
