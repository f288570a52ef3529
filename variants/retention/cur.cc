// cur: a prompt is cut down once by approximate leverage scores (CurDKV, Sengupta et al. 2025, arXiv:2509.15038, as kvpress has
// it): a token's share of the squared norms of its `window` tokens' keys, times the same of values. The first `sinks` stay.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "variants/list.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

class Cur : public ScoredCut<Cur> {
  using ScoredCut::ScoredCut;

  std::vector<double> score(const SliceRows& rows) const override {
    const int64_t sinks = parameter("sinks"), window = parameter("window");
    std::vector<double> scores(static_cast<size_t>(rows.n), 1.0);
    for (const auto& [from, width] : {std::pair{rows.k, rows.head_dim}, std::pair{rows.v, rows.value_dim}}) {
      std::vector<double> squares;
      for (int64_t i = 0; i < rows.n; ++i) squares.push_back(squared_norm(from + i * rows.head_dim, width));
      for (int64_t first = 0; first < rows.n; first += window) {
        const int64_t end = std::min(rows.n, first + window);
        const double sum = std::accumulate(squares.begin() + first, squares.begin() + end, 0.0);
        for (int64_t i = first; i < end; ++i) scores[i] *= squares[i] / sum;
      }
    }
    std::fill_n(scores.begin(), std::min(sinks, rows.n), INFINITY);
    return scores;
  }
};

}  // namespace

const RetentionEntry cur = prompt_cut_entry<Cur, CutSettings>(
    {.name = "cur",
     .help = "cuts a long prompt down to the rows of the largest share of their neighbours' norms",
     .source = "CurDKV, Sengupta et al. 2025 (arXiv:2509.15038), its norms without a random projection, as "
               "kvpress' default",
     .parameters = {cut_budget_parameter(), cut_sinks_parameter(),
                    Parameter::integer("window", "16", 1, 65536, {8}, "tokens whose norms are shared out")}});

}  // namespace kv::retention
