// Sink logits and soft-capping in attention, on every instruction set of this machine, against loops over doubles.
#include <algorithm>
#include <numeric>

#include "tests/kernels/cpu/attention_support.h"

namespace kv {
namespace {

using namespace test;

class SinksAndCaps : public EveryIsa {};
INSTANTIATE_TEST_SUITE_P(Attention, SinksAndCaps, every_isa(), isa_name);

struct Shape {
  int group, head_dim;
  int64_t rows, n;
  Encoding encoding{};
};

const Shape kShapes[] = {{4, 64, 1, 1},   {3, 16, 65, 1},  {4, 64, 700, 1},   {40, 16, 530, 1},
                         {2, 32, 100, 7}, {4, 64, 90, 90}, {2, 128, 600, 40}, {4, 64, 300, 1, kF16}};

struct Extras {
  std::vector<float> sinks;  // [group], or empty
  float cap = 0;
};

// Outputs [group, n, head_dim] and the share of each query that no row gets [group, n].
struct Answer {
  std::vector<double> out, left;
};

Answer in_fp64(const Shape& s, const StoredHead& head, const std::vector<float>& q, const Extras& extras) {
  Answer a;
  const auto at = [&](const std::vector<float>& from, int64_t row, int64_t d) {
    return double{from[static_cast<size_t>(row * s.head_dim + d)]};
  };
  for (int64_t query = 0; query < s.group * s.n; ++query) {
    std::vector<double> scores;
    for (int64_t row = 0; row < s.rows - s.n + 1 + query % s.n; ++row) {
      double score = 0;
      for (int64_t d = 0; d < s.head_dim; ++d) score += at(q, query, d) * at(head.k, row, d);
      score /= std::sqrt(s.head_dim);
      scores.push_back(extras.cap > 0 ? extras.cap * std::tanh(score / double{extras.cap}) : score);
    }
    if (!extras.sinks.empty()) scores.push_back(double{extras.sinks[static_cast<size_t>(query / s.n)]});
    const double top = *std::max_element(scores.begin(), scores.end());
    for (double& x : scores) x = std::exp(x - top);
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    a.left.push_back(extras.sinks.empty() ? 0 : scores.back() / sum);
    if (!extras.sinks.empty()) scores.pop_back();
    for (int64_t d = 0; d < s.head_dim; ++d) {
      double out = 0;
      for (size_t row = 0; row < scores.size(); ++row)
        out += scores[row] / sum * at(head.v, static_cast<int64_t>(row), d);
      a.out.push_back(out);
    }
  }
  return a;
}

StoredHead stored(const Shape& s) {
  StoredHead head(s.head_dim);
  const int64_t first = (s.rows + 1) / 2 * s.head_dim;
  const std::vector<float> k = gaussian(s.rows * s.head_dim, 1, 2), v = gaussian(s.rows * s.head_dim, 2);
  for (const auto& [begin, end] : {std::pair{int64_t{0}, first}, std::pair{first, s.rows * s.head_dim}}) {
    if (begin == end) continue;
    const auto cut = [&, from = begin, to = end](const std::vector<float>& x) {
      return std::span(x).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
    };
    head.add(s.encoding, cut(k), cut(v));
  }
  return head;
}

std::vector<float> run(const Shape& s, const StoredHead& head, const std::vector<float>& q,
                       const Extras& extras, float* weights = nullptr) {
  return attended(head.spans, s.head_dim, q, s.n,
                  {.spans = {},
                   .sink_logits = extras.sinks.empty() ? nullptr : extras.sinks.data(),
                   .score_cap = extras.cap,
                   .attention_weights = weights});
}

TEST_P(SinksAndCaps, AgreeWithFp64) {
  for (const Shape& s : kShapes) {
    const StoredHead head = stored(s);
    const auto q = gaussian(s.group * s.n * s.head_dim, 3, 2);
    for (const Extras& extras : {Extras{gaussian(s.group, 4, 3), 0}, Extras{{}, 2}, Extras{{}, 50},
                                 Extras{gaussian(s.group, 5, 3), 4}}) {
      const Answer want = in_fp64(s, head, q, extras);
      const double error = relative_error(run(s, head, q, extras), want.out);
      EXPECT_LT(error, 2e-6) << s.rows << " rows, " << s.n << " tokens, cap " << extras.cap;
      const bool exact = GetParam() == "scalar" || s.rows == 1;
      if (!exact) {
        EXPECT_GT(error, 1e-9) << "f32 cannot be this exact";
      }
      const double without = relative_error(run(s, head, q, {}), want.out);
      if (s.rows > 1) {
        EXPECT_GT(without, 4e-6) << "they would not be noticed";
      }
    }
  }
}

// A sink far above every score leaves next to nothing for the rows, one far below changes nothing.
TEST_P(SinksAndCaps, ASinkMayBeOfAnySize) {
  for (const Shape& s : kShapes) {
    const StoredHead head = stored(s);
    const auto q = gaussian(s.group * s.n * s.head_dim, 3);
    const auto none = run(s, head, q, {});
    const auto low = run(s, head, q, {std::vector<float>(static_cast<size_t>(s.group), -1e30f), 0});
    const auto high = run(s, head, q, {std::vector<float>(static_cast<size_t>(s.group), 1e30f), 0});
    for (size_t i = 0; i < none.size(); ++i) {
      EXPECT_EQ(low[i], none[i]);
      EXPECT_EQ(high[i], 0.0f);
    }
  }
}

// Policies that score by attention get the rows' weights, without the sink's share.
TEST_P(SinksAndCaps, WeightsAreTheRowsShares) {
  for (const Shape& s : {kShapes[1], kShapes[2], kShapes[4]}) {
    const StoredHead head = stored(s);
    const auto q = gaussian(s.group * s.n * s.head_dim, 3);
    const Extras extras{gaussian(s.group, 4), 3};
    std::vector<float> weights(static_cast<size_t>(s.rows));
    run(s, head, q, extras, weights.data());
    const Answer want = in_fp64(s, head, q, extras);
    const double left = std::accumulate(want.left.begin(), want.left.end(), 0.0);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    EXPECT_NEAR(sum, static_cast<double>(s.group * s.n) - left, 1e-4 * static_cast<double>(s.group * s.n));
    EXPECT_GT(left, 1e-3);
  }
}

}  // namespace
}  // namespace kv
