// expected: a prompt is cut down once to the tokens that coming queries are expected to attend to (Devoto et al. 2025,
// arXiv:2510.00636, and NVIDIA's kvpress). No attention weights are needed: queries are taken for normal, of the mean m
// and the covariance C of the prompt's own queries, so that a key k is expected to get
//
//   E exp(q·k / sqrt(d)) = exp(k·m / sqrt(d) + k'Ck / 2d)
//
// as a share of all keys' sum, averaged over the head's group of query heads, and times the norm of its value. The
// first `sinks` tokens stay, and are left out of m and C; so do the largest others, up to `budget` with the sinks, of equal
// ones the earliest.
//
// A coming query stands at another position than those seen. With future=n each query is rotated back by its own
// position, and m and C get the mean rotation of the n positions behind the prompt, as in kvpress. That needs rows that
// the cache's RoPE has rotated; future=0 takes queries as they come, for rows that RoPE has never met.
//
// Sums are made in FP64 when the prompt has attended, of O(head_dim^2) a query head, and given back. Counted in the
// ledger: as for every policy that cuts prompts (variants/retention/prompt_cut.h).
#include <algorithm>
#include <cmath>
#include <complex>

#include "variants/core/rope.h"
#include "variants/list.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

using Doubles = std::vector<double>;

// Rotates pairs of channels, each by a complex factor [head_dim / 2].
class PairRotation {
 public:
  PairRotation(const Rope& rope, int head_dim) : rope_(rope), head_dim_(head_dim) {}

  // The mean of the rotations by positions [first, first + count).
  std::vector<std::complex<double>> mean(int64_t first, int64_t count) const {
    std::vector<std::complex<double>> factors;
    for (int pair = 0; pair < head_dim_ / 2; ++pair) {
      std::complex<double> sum = 0.0;
      for (int64_t p = first; p < first + count; ++p)
        sum += std::polar(rope_.amplitude, static_cast<double>(p) * rope_.frequency(pair, head_dim_));
      factors.push_back(sum / static_cast<double>(count));
    }
    return factors;
  }
  // `row`: head_dim values, `stride` apart.
  void apply(const std::vector<std::complex<double>>& factors, double* row, int64_t stride) const {
    const bool halves = rope_.pairs == RopePairs::kHalfSplit;
    for (int pair = 0; pair < head_dim_ / 2; ++pair) {
      double& a = row[(halves ? pair : 2 * pair) * stride];
      double& b = row[(halves ? pair + head_dim_ / 2 : 2 * pair + 1) * stride];
      const std::complex<double> to = std::complex<double>(a, b) * factors[static_cast<size_t>(pair)];
      a = to.real();
      b = to.imag();
    }
  }

 private:
  const Rope& rope_;
  int head_dim_;
};

// Moments of one head's queries.
struct Moments {
  Doubles mean;        // [head_dim]
  Doubles covariance;  // [head_dim, head_dim]
};

class Expected : public ScoredCut<Expected> {
 public:
  Expected(const Stage& stage, const RetentionContext& context)
      : ScoredCut(stage, context),
        sinks_(parameter("sinks")),
        future_(parameter("future")),
        rope_(context.rope) {}

 private:
  Doubles score(const SliceRows& rows) const override {
    Doubles scores(static_cast<size_t>(rows.n - sinks_));
    for (int h = 0; h < rows.group; ++h) add_expected_weights(rows, moments(rows, h), scores);
    for (int64_t i = 0; i < std::ssize(scores); ++i)
      scores[i] *= std::sqrt(squared_norm(rows.v + (i + sinks_) * rows.head_dim, rows.value_dim));
    scores.insert(scores.begin(), static_cast<size_t>(sinks_), INFINITY);
    return scores;
  }

  Moments moments(const SliceRows& rows, int query_head) const {
    const int64_t d = rows.head_dim, n = rows.n - sinks_;
    const PairRotation rotation(*rope_, rows.head_dim);
    Moments m{Doubles(static_cast<size_t>(d)), Doubles(static_cast<size_t>(d * d))};
    Doubles queries(static_cast<size_t>(n * d));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t token = i + sinks_;
      double* q = queries.data() + i * d;
      std::copy_n(rows.q + (query_head * rows.n + token) * d, d, q);
      if (future_ > 0) {
        std::vector<std::complex<double>> back = rotation.mean(token, 1);
        for (std::complex<double>& factor : back) factor = 1.0 / factor;
        rotation.apply(back, q, 1);
      }
      for (int64_t x = 0; x < d; ++x) m.mean[x] += q[x] / static_cast<double>(n);
    }
    for (int64_t i = 0; i < n; ++i) {
      double* q = queries.data() + i * d;
      for (int64_t x = 0; x < d; ++x) q[x] -= m.mean[x];
      for (int64_t x = 0; x < d; ++x) {
        for (int64_t y = 0; y < d; ++y) m.covariance[x * d + y] += q[x] * q[y] / static_cast<double>(n);
      }
    }
    if (future_ > 0) {
      const auto coming = rotation.mean(rows.n, future_);
      rotation.apply(coming, m.mean.data(), 1);
      for (int64_t x = 0; x < d; ++x) rotation.apply(coming, m.covariance.data() + x * d, 1);
      for (int64_t x = 0; x < d; ++x) rotation.apply(coming, m.covariance.data() + x, d);
    }
    return m;
  }

  // The expected weights of one query head, over all keys 1 / group in sum.
  void add_expected_weights(const SliceRows& rows, const Moments& m, Doubles& to) const {
    const int64_t d = rows.head_dim;
    Doubles logits;
    for (int64_t i = 0; i < std::ssize(to); ++i) {
      const float* k = rows.k + (i + sinks_) * d;
      double linear = 0.0, square = 0.0;
      for (int64_t x = 0; x < d; ++x) {
        double row = 0.0;
        for (int64_t y = 0; y < d; ++y) row += m.covariance[x * d + y] * k[y];
        linear += k[x] * m.mean[x];
        square += k[x] * row;
      }
      logits.push_back(linear / std::sqrt(static_cast<double>(d)) + square / (2.0 * static_cast<double>(d)));
    }
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (double& logit : logits) sum += logit = std::exp(logit - most);
    for (int64_t i = 0; i < std::ssize(to); ++i) to[i] += logits[i] / sum / rows.group;
  }

  int64_t sinks_, future_;
  const Rope* rope_;
};

}  // namespace

const RetentionEntry expected = prompt_cut_entry<Expected, CutSettings>(
    {.name = "expected",
     .help = "cuts a long prompt down to what queries like its own are expected to attend to",
     .source = "Expected Attention, Devoto et al. 2025 (arXiv:2510.00636); its code has future=512",
     .parameters = {
         cut_budget_parameter(), cut_sinks_parameter(),
         Parameter::integer("future", "0", 0, 65536, {},
                            "coming positions that RoPE is averaged over; 0: rows without RoPE")}});

}  // namespace kv::retention
