// lagkv: a prompt is cut down once, by how tokens vary against those that follow (Liang et al. 2025, arXiv:2504.04704). Behind
// the sinks it is divided into parts of `lag` tokens. A token's score is the standard deviation over channels of its row, scaled
// to the next part's smallest and largest value of each channel; softmax over the part, of keys and values, on average. Ranks
// within a part decide, so that every part loses as many, to one; of equal ranks the earliest stays. The sinks, the last part and
// what follows it stay. A prompt of less than two parts keeps its newest tokens.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "variants/list.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

// Adds to `to` [lag] the softmax of a part's deviations, of the first `width` of `stride` values. The next part lies behind it.
void add_spreads(const float* rows, int width, int stride, std::vector<double>& to) {
  const int64_t lag = std::ssize(to);
  std::vector<double> sum(to.size()), spread(to.size());
  for (int x = 0; x < width; ++x) {
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = lag; i < 2 * lag; ++i) {
      low = std::min(low, double{rows[i * stride + x]});
      high = std::max(high, double{rows[i * stride + x]});
    }
    for (int64_t i = 0; i < lag; ++i) {
      const double scaled = (rows[i * stride + x] - low) / (high - low);
      sum[i] += scaled;
      spread[i] += scaled * scaled;
    }
  }
  double total = 0.0;
  for (int64_t i = 0; i < lag; ++i)
    total += spread[i] = std::exp(std::sqrt((spread[i] - sum[i] * sum[i] / width) / (width - 1)));
  for (int64_t i = 0; i < lag; ++i) to[i] += spread[i] / total;
}

class LagKv : public ScoredCut<LagKv> {
  using ScoredCut::ScoredCut;

  std::vector<double> score(const SliceRows& rows) const override {
    const int64_t sinks = parameter("sinks"), lag = parameter("lag"), d = rows.head_dim;
    std::vector<double> scores(static_cast<size_t>(rows.n), INFINITY);
    if (rows.n < sinks + 2 * lag) std::iota(scores.begin() + sinks, scores.end(), 0.0);
    for (int64_t first = sinks; first + 2 * lag <= rows.n; first += lag) {
      std::vector<double> part(static_cast<size_t>(lag));
      add_spreads(rows.k + first * d, rows.head_dim, rows.head_dim, part);
      add_spreads(rows.v + first * d, rows.value_dim, rows.head_dim, part);
      for (int64_t i = 0; i < lag; ++i)
        scores[first + i] =
            static_cast<double>(std::ranges::count_if(part, [&](double x) { return x < part[i]; }));
    }
    return scores;
  }
};

}  // namespace

const RetentionEntry lagkv = prompt_cut_entry<LagKv, CutSettings>(
    {.name = "lagkv",
     .help = "cuts a long prompt down to the tokens that vary most against the part that follows theirs",
     .source = "LagKV, Liang et al. 2025 (arXiv:2504.04704)",
     .parameters = {cut_budget_parameter(), cut_sinks_parameter(),
                    Parameter::integer("lag", "128", 2, 65536, {16}, "tokens of a part")}});

}  // namespace kv::retention
