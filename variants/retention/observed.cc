// observed: a prompt is cut down once to the tokens of the largest mean attention, over all queries that saw them (H2O, Zhang et al.
// 2023, arXiv:2306.14048, as kvpress has it). The last tokens, which few queries saw, have the largest means. H2O's own sum, which
// favours the first, is `h2o`.
#include <algorithm>

#include "variants/list.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

class Observed : public PromptCut {
 public:
  Observed(const Stage& stage, const RetentionContext& context)
      : PromptCut(CutSettings(stage, context.max_tokens).budget, context) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<Observed>(*this); }

  Slice next(int64_t remaining) override {
    constexpr int64_t kSliceTokens = 64;  // bounds the workspace
    if (count() >= find_prompt(remaining)) return {.tokens = remaining};
    return {.tokens = std::min(remaining, kSliceTokens), .scored = true};
  }
  void observe(std::span<const float> weights) override {
    sums_.resize(static_cast<size_t>(prompt()));
    for (size_t i = 0; i < weights.size(); ++i) sums_[i] += weights[i];
    if (std::ssize(weights) < prompt()) return;
    for (int64_t i = 0; i < prompt(); ++i) sums_[i] /= static_cast<double>(prompt() - i);
    keep(largest(sums_, budget()));
    sums_ = {};
  }

 private:
  std::vector<double> sums_;  // [prompt]
};

}  // namespace

const RetentionEntry observed = prompt_cut_entry<Observed, CutSettings>(
    {.name = "observed",
     .help = "cuts a long prompt down to the tokens of the largest mean attention",
     .source = "H2O (arXiv:2306.14048) as kvpress has it: means over the queries that see a token",
     .parameters = {cut_budget_parameter()}});

}  // namespace kv::retention
