// keydiff: a prompt is cut down once to the keys that differ most from the others (Park et al. 2025, arXiv:2504.15364). The
// anchor is the mean of all keys of length 1; the keys of the largest cosine similarity to it go.
//
// The paper's own loop cuts block by block as the prompt comes; here, as in kvpress, all of it attends first.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "variants/list.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

class KeyDiff : public ScoredCut<KeyDiff> {
  using ScoredCut::ScoredCut;

  std::vector<double> score(const SliceRows& rows) const override {
    const int d = rows.head_dim;
    std::vector<double> anchor(static_cast<size_t>(d)), lengths, scores;
    for (int64_t i = 0; i < rows.n; ++i) {
      lengths.push_back(std::max(std::sqrt(squared_norm(rows.k + i * d, d)), 1e-12));
      for (int x = 0; x < d; ++x) anchor[x] += rows.k[i * d + x] / lengths.back();
    }
    for (int64_t i = 0; i < rows.n; ++i)
      scores.push_back(-std::inner_product(anchor.begin(), anchor.end(), rows.k + i * d, 0.0) / lengths[i]);
    return scores;
  }
};

}  // namespace

const RetentionEntry keydiff = prompt_cut_entry<KeyDiff, CutSettings>(
    {.name = "keydiff",
     .help = "cuts a long prompt down to the keys least like the mean key",
     .source = "KeyDiff, Park et al. 2025 (arXiv:2504.15364); its code cuts a block at a time",
     .parameters = {cut_budget_parameter()}});

}  // namespace kv::retention
