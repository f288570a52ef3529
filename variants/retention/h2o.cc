// h2o: heavy hitters and the newest tokens (Zhang et al. 2023, arXiv:2306.14048, Algorithm 1).
//
// A slot's score is the attention probability it has received so far, summed over the head's group of query
// heads and over all queries since it came, those of the prefill included. When the cache is full, the
// lightest slot outside the `recent` newest tokens is overwritten; of equal ones the lowest slot. `heavy` and
// `recent` are separate budgets: heavy + recent rows are held.
//
// The authors' code differs: it prefills with full attention and evicts once at the end of the prompt; here
// eviction works from the first token on, as in the paper's algorithm, so that memory stays flat through the
// prefill as well. It also scores every query head alone; here the query heads that share a kv head vote
// together, since they share its rows.
#include <algorithm>

#include "kernels/math.h"
#include "variants/list.h"
#include "variants/retention/evicting.h"

namespace kv::retention {
namespace {

// Scoring keeps a row of probabilities for each query of a slice; this bounds the workspace of a long
// prefill.
constexpr int64_t kMostScoredTokens = 64;

class H2o : public EvictingPolicy<H2o, SlotScores::kOfAttention> {
 public:
  H2o(const Stage& stage, const RetentionContext& context)
      : EvictingPolicy(stage, context, {.recent = stage.rows("recent", context.max_tokens)}),
        recent_(stage.rows("recent", context.max_tokens)) {}
  static int64_t budget_of(const Stage& stage, int64_t max_tokens) {
    return stage.rows("heavy", max_tokens) + stage.rows("recent", max_tokens);
  }

  Slice next(int64_t remaining) override {
    return {.tokens = std::min(Evicting::next(remaining).tokens, kMostScoredTokens), .scored = true};
  }
  int64_t earliest() const override { return count(); }
  void observe(std::span<const float> weights) override {
    const std::span<float> score = scores();
    for (size_t slot = 0; slot < score.size(); ++slot) score[slot] += weights[slot];
  }

 private:
  int64_t victim() const override {
    const auto token = tokens();
    const auto score = scores();
    int64_t lightest = -1;
    for (int64_t slot = 0; slot < slots(); ++slot) {
      const bool is_recent = token[slot] > count() - recent_;  // the coming token is one of the recent
      if (!is_recent && (lightest < 0 || is_lighter(score[slot], score[lightest]))) lightest = slot;
    }
    return lightest;
  }

  int64_t recent_;
};

}  // namespace

const RetentionEntry h2o = H2o::entry(
    {.name = "h2o",
     .help = "heavy hitters by accumulated attention, and the newest tokens",
     .source = "H2O, Zhang et al. 2023 (arXiv:2306.14048)",
     .parameters = {Parameter::rows("heavy", "128", {16}, "rows kept for the attention they have received"),
                    Parameter::rows("recent", "128", {16}, "newest tokens, never evicted")}},
    {.irreversible = "scores are sums over all queries, which cannot be taken apart"});

}  // namespace kv::retention
