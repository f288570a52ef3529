// Attention kernels against the FP64 oracle and against each other, on every instruction set of this machine.
#include "kernels/attention.h"
#include "kernels/piece_order.h"

#include "kernels/math.h"
#include "tests/kernels/cpu/attention_support.h"

namespace kv::attention_test {
namespace {

using namespace test;

struct Case {
  int group, head_dim;
  int64_t rows, n;
  Format format = Format::kF32;
};

// One head's rows in spans of `span_rows`.
struct Rows : StoredHead {
  Rows(const Case& c, int64_t span_rows) : StoredHead(c.head_dim) {
    const Encoding e{.format = c.format, .bits = 16};
    const std::vector<float> keys = gaussian(c.rows * c.head_dim, 1),
                             values = gaussian(c.rows * c.head_dim, 2);
    for (int64_t row = 0; row < c.rows; row += span_rows) {
      const auto at = static_cast<size_t>(row * c.head_dim);
      const auto size = static_cast<size_t>(std::min(span_rows, c.rows - row) * c.head_dim);
      add(e, std::span(keys).subspan(at, size), std::span(values).subspan(at, size));
    }
  }
};

std::vector<float> queries(const Case& c) { return gaussian(c.group * c.n * c.head_dim, 3); }

std::vector<float> run(const Case& c, const Rows& rows, const std::vector<float>& q) {
  return attended(rows.spans, c.head_dim, q, c.n);
}

double error_of(const Case& c, const Rows& rows, const std::vector<float>& q) {
  return relative_error(run(c, rows, q), attended_fp64(rows.k, rows.v, c.head_dim, q, c.n));
}

using Attention = EveryIsa;
INSTANTIATE_TEST_SUITE_P(EveryIsa, Attention, every_isa(), isa_name);

const Case kCases[] = {
    {1, 64, 1, 1},
    {1, 8, 3, 1},
    {2, 8, 65, 1},
    {4, 128, 64, 1},
    {8, 64, 513, 1},
    {3, 24, 1025, 1},
    {1, 256, 700, 1},
    {40, 32, 130, 1},
    {1, 64, 37, 37},
    {4, 64, 100, 33},
    {2, 16, 640, 7},
    {1, 512, 66, 2},
    {4, 64, 513, 1, Format::kF16},
    {2, 128, 100, 20, Format::kF16},
    {1, 8, 77, 1, Format::kF16},
    {4, 64, 513, 1, Format::kBf16},
};

TEST_P(Attention, AgreesWithFp64) {
  for (const Case& c : kCases) {
    const Rows rows(c, c.rows);
    const auto q = queries(c);
    EXPECT_LT(error_of(c, rows, q), 2e-6)
        << "group " << c.group << " head_dim " << c.head_dim << " rows " << c.rows << " n " << c.n;
  }
}

TEST_P(Attention, SpanBordersChangeNoBit) {
  for (const Case& c : kCases) {
    const auto q = queries(c);
    const auto whole = run(c, Rows(c, c.rows), q);
    for (const int64_t span_rows : {1, 5, 16, 64, 300}) {
      const auto cut = run(c, Rows(c, span_rows), q);
      expect_same_bits(whole, cut,
                       "spans of " + std::to_string(span_rows) + ", rows " + std::to_string(c.rows));
    }
  }
}

// A ring may leave its rows where they are: a decode step's softmax is a sum over keys, whose order is free up to rounding.
TEST_P(Attention, KeysInAnyOrderGiveTheSameOutput) {
  for (const Case& c : kCases) {
    if (c.n > 1) continue;  // a chunk's mask depends on the order
    const Rows rows(c, 5);
    const auto q = queries(c);
    const std::vector<double> want = attended_fp64(rows.k, rows.v, c.head_dim, q, c.n);
    std::vector<Span> turned = rows.spans;
    std::rotate(turned.begin(), turned.begin() + std::ssize(turned) / 3, turned.end());
    EXPECT_LT(relative_error(attended(turned, c.head_dim, q, c.n), want), 2e-6) << "a ring of " << c.rows;
    std::ranges::shuffle(turned, std::mt19937(5));
    EXPECT_LT(relative_error(attended(turned, c.head_dim, q, c.n), want), 2e-6) << "shuffled " << c.rows;
  }
}

// K and V of some heads, encoded: [blocks, heads, block] rows of each, or, with blocks as long as everything,
// [heads, rows].
struct Pool {
  Encoding k, v;
  int head_dim, heads;
  int64_t rows, block;
  std::vector<std::byte> data[2], meta[2];

  Pool(const Encoding& k_, const Encoding& v_, int head_dim_, int heads_, int64_t rows_, int64_t block_)
      : k(k_), v(v_), head_dim(head_dim_), heads(heads_), rows(rows_), block(block_) {
    for (const int side : {0, 1}) {
      const Encoding& e = side ? v : k;
      data[side].resize(static_cast<size_t>(heads * rows / e.group * unit_data_bytes(e, head_dim)));
      meta[side].resize(static_cast<size_t>(heads * rows / e.group * unit_meta_bytes(e, head_dim) + 1));
      const auto values =
          gaussian(static_cast<size_t>(heads * rows * head_dim), 7 + static_cast<uint64_t>(side));
      for (int head = 0; head < heads; ++head) {
        for (int64_t row = 0; row < rows; row += e.group) {
          const int64_t unit = row % block / e.group;
          const Side at = this->side(side, head, row / block);
          encode_unit(e, head_dim, &values[static_cast<size_t>((head * rows + row) * head_dim)],
                      const_cast<std::byte*>(at.data) + unit * at.stride,
                      const_cast<std::byte*>(at.meta) + unit * at.meta_stride);
        }
      }
    }
  }
  // Rows [index * block, (index + 1) * block) of a head. Blocks lie the last one first.
  Side side(int v_side, int head, int64_t index) const {
    const Encoding& e = v_side ? v : k;
    const int64_t bytes = unit_data_bytes(e, head_dim), meta_bytes = unit_meta_bytes(e, head_dim);
    const int64_t unit = ((rows / block - 1 - index) * heads + head) * (block / e.group);
    return {.data = data[v_side].data() + unit * bytes,
            .meta = meta[v_side].data() + unit * meta_bytes,
            .stride = bytes,
            .meta_stride = meta_bytes,
            .encoding = e};
  }
  std::vector<Span> spans(int head) const {
    std::vector<Span> all;
    for (int64_t i = 0; i < rows / block; ++i) all.push_back({side(0, head, i), side(1, head, i), block});
    return all;
  }
};

std::vector<float> attend_pool(const Pool& pool, int group, int64_t n, int64_t unseen) {
  const int64_t queries = group * n * pool.head_dim;
  const auto q = gaussian(static_cast<size_t>(pool.heads * queries), 3);
  std::vector<float> out(q.size());
  std::vector<std::vector<Span>> spans;
  std::vector<HeadQueries> problems;
  for (int head = 0; head < pool.heads; ++head) spans.push_back(pool.spans(head));
  for (int head = 0; head < pool.heads; ++head)
    problems.push_back({.q = q.data() + head * queries,
                        .out = out.data() + head * queries,
                        .spans = spans[static_cast<size_t>(head)],
                        .group = group,
                        .n = n,
                        .visible = pool.rows - unseen - n + 1});
  run_attention(problems, pool.head_dim);
  return out;
}

// Heads whose rows lie side by side in short spans are worked on in turns.
TEST_P(Attention, HeadsInTurnsChangeNoBit) {
  const std::pair<Encoding, Encoding> encodings[] = {{kF32, kF32},
                                                     {kF16, kBf16},
                                                     {kFp8E4M3, kFp8E4M3},
                                                     {kQ8, kQ4},
                                                     {token(8, true), token(4, true)},
                                                     {channel(4, 8), token(2, true)},
                                                     {token(3, true), kF16}};
  struct Work {
    int heads, group;
    int64_t n;
  };
  for (const auto& [k, v] : encodings) {
    for (const Work& w : {Work{7, 1, 1}, Work{5, 4, 1}, Work{3, 2, 5}}) {
      const auto want = attend_pool(Pool(k, v, 64, w.heads, 1360, 1360), w.group, w.n, 3);
      const auto got = attend_pool(Pool(k, v, 64, w.heads, 1360, 16), w.group, w.n, 3);
      EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
          << encodings_name(k, v) << ", " << w.heads << " heads, group " << w.group << ", n " << w.n;
    }
  }
}

// Few queries (split along the rows) and many (not split), with a causal edge in the last pieces.
TEST_P(Attention, PiecesChangeNoBit) {
  for (const Case& c : {Case{4, 64, 1700, 1}, Case{2, 32, 1536, 40}, Case{2, 32, 1700, 700}}) {
    const Rows rows(c, 256);
    const auto q = queries(c);
    const auto want = run(c, rows, q);
    for (const int64_t length : {int64_t{kSplitRows}, int64_t{2 * kSplitRows}}) {
      std::vector<float> out;
      HeadQueries problem = problem_of(rows.spans, c.head_dim, q, c.n, out);
      problem.spans = {};  // they come piece by piece
      std::vector<std::byte> memory(PiecewiseAttention::workspace_bytes({&problem, 1}, c.head_dim) + 64);
      void* workspace = memory.data();
      size_t room = memory.size();
      std::align(64, room - 64, workspace, room);
      PiecewiseAttention attention({&problem, 1}, c.head_dim, static_cast<std::byte*>(workspace));
      std::vector<int64_t> begins;
      for (int64_t row = 0; row < c.rows; row += length) begins.push_back(row);
      if (pieces_take_any_order({&problem, 1})) std::ranges::reverse(begins);
      for (const int64_t row : begins) {
        const int64_t end = std::min(row + length, c.rows);
        const auto first = rows.spans.begin() + row / 256, last = rows.spans.begin() + (end + 255) / 256;
        const PiecewiseAttention::Piece piece{0, {first, last}, row, end};
        attention.run({&piece, 1});
      }
      attention.finish();
      expect_same_bits(out, want, std::to_string(c.n) + " tokens");
    }
  }
}

TEST(Attention, WorkspaceDoesNotGrowWithThePrompt) {
  const auto bytes = [](int64_t tokens, float* mass) {
    const HeadQueries problem{.spans = {}, .group = 4, .n = tokens, .visible = 1, .attention_weights = mass};
    return attention_workspace_bytes({&problem, 1}, 64);
  };
  EXPECT_EQ(bytes(256, nullptr), bytes(128, nullptr));
  EXPECT_EQ(bytes(1 << 20, nullptr), bytes(128, nullptr));
  // The weights that a retention asks for are those of the held queries, and a base a tile: linear, not
  // quadratic.
  float mass = 0.0f;
  EXPECT_EQ(bytes(2048, &mass) - bytes(1024, &mass),
            kHeldQueries * (1024 + 1024 / kTileRows) * sizeof(float));
}

TEST_P(Attention, ThreadsChangeNoBit) {
  for (const Case& c : kCases) {
    const Rows rows(c, c.rows);
    const auto q = queries(c);
    expect_threads_change_no_bit([&] { return run(c, rows, q); }, "rows " + std::to_string(c.rows));
  }
}

TEST_P(Attention, MassIsTheSumOfTheProbabilities) {
  const Case c{4, 32, 777, 1};
  const Rows rows(c, c.rows);
  const auto q = queries(c);
  std::vector<float> mass(static_cast<size_t>(c.rows), 0.0f);
  attended(rows.spans, c.head_dim, q, 1, {.spans = {}, .attention_weights = mass.data()});
  std::vector<double> want(mass.size(), 0.0);
  for (int g = 0; g < c.group; ++g) {
    const auto p = reference::attend({q.data() + g * c.head_dim, static_cast<size_t>(c.head_dim)}, rows.k,
                                     rows.v, c.rows);
    for (size_t i = 0; i < want.size(); ++i) want[i] += p.probabilities[static_cast<Eigen::Index>(i)];
  }
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(mass[i], want[i], 1e-5 * want[i] + 1e-12);
}

TEST_P(Attention, LargeScoresNeitherOverflowNorVanish) {
  Case c{2, 64, 200, 1};
  Rows rows(c, c.rows);
  auto q = queries(c);
  for (float& x : q) x *= 1000.0f;
  EXPECT_LT(error_of(c, rows, q), 1e-3);
}

TEST_P(Attention, HalfConversionEqualsTheScalarOneBitForBit) {
  std::vector<float> from;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 997) {
    from.push_back(std::bit_cast<float>(bits));
    from.push_back(-std::bit_cast<float>(bits));
  }
  from.insert(from.begin(),
              {INFINITY, -INFINITY, 0.0f, -0.0f, 65519.996f, 65520.0f, 0x1p-25f, 0x1.000002p-25f, 0x1p-24f});
  from.resize(from.size() / 8 * 8);
  std::vector<uint16_t> to(from.size());
  for (size_t i = 0; i < from.size(); i += 8)
    encode_unit(kF16, 8, &from[i], reinterpret_cast<std::byte*>(&to[i]), nullptr);
  for (size_t i = 0; i < from.size(); ++i) ASSERT_EQ(to[i], f32_to_f16(from[i])) << from[i];
}

TEST(Math, HalfRoundTripsExactlyAndRoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = f16_to_f32(static_cast<uint16_t>(h));
    if (std::isnan(f)) continue;
    ASSERT_EQ(f32_to_f16(f), h);
  }
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);             // halfway: to even, down
  EXPECT_EQ(f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);         // halfway: to even, up
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);  // above halfway
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(NAN))));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(NAN))));
}

TEST(Math, MergingWithNothingChangesNothing) {
  SoftmaxState a{1.5f, 2.0f};
  const MergeFactors f = merge(a, SoftmaxState());
  EXPECT_EQ(a.max, 1.5f);
  EXPECT_EQ(a.sum, 2.0f);
  EXPECT_EQ(f.a, 1.0f);
  EXPECT_EQ(f.b, 0.0f);
  SoftmaxState none;
  merge(none, SoftmaxState());
  EXPECT_EQ(none.sum, 0.0f);
}

TEST(Isa, AnUnknownOneIsRefusedWithTheList) {
  EXPECT_THROW(cpu::force_isa("mmx"), std::invalid_argument);
  EXPECT_EQ(cpu::active_isa(), cpu::available_isas().front());
}

// Callers run several attentions in an OpenMP loop, as over windows of a text. In a team of one, attention's
// own loops could end the caller's.
TEST_P(Attention, LoopsOfItsCallerGoOn) {
  const Case c{1, 64, 100, 1};
  const Rows rows(c, 100);
  const std::vector<float> q = queries(c), want = run(c, rows, q);
  const int threads = omp_get_max_threads();
  for (const int team : {1, 2}) {
    std::vector<std::vector<float>> got(5);
    omp_set_num_threads(team);
#pragma omp parallel for schedule(dynamic, 1)
    for (auto& one : got) one = run(c, rows, q);
    omp_set_num_threads(threads);
    for (const auto& one : got) EXPECT_EQ(one, want) << team;
  }
}

}  // namespace
}  // namespace kv::attention_test
