// tova: token omission via attention (Oren et al. 2024, arXiv:2401.06104).
//
// A slot's score is the attention probability that the newest query gave it, summed over the head's group of
// query heads; the lowest is overwritten next, of equal ones the lowest slot. Nothing is protected: a token
// may go as soon as its own query has ignored it.
//
// The authors' code averages the probabilities over all heads of a layer, which then drop the same token;
// here each kv head decides for itself. A budget of B rows is their state of B - 1, since they evict once a
// query has attended.
#include <algorithm>

#include "kernels/math.h"
#include "variants/list.h"
#include "variants/retention/evicting.h"

namespace kv::retention {
namespace {

class Tova : public EvictingPolicy<Tova, SlotScores::kOfAttention> {
 public:
  Tova(const Stage& stage, const RetentionContext& context)
      : EvictingPolicy(stage, context, {.newest_query = true}) {}

  // Only a query before an eviction is scored, alone: the one that fills the last slot, and all after it.
  Slice next(int64_t remaining) override {
    const int64_t room = budget() - count();
    if (room > 1) return {.tokens = std::min(remaining, room - 1), .scored = false};
    return {.tokens = 1, .scored = true};
  }
  void truncate(int64_t tokens) override {
    const bool forgets = tokens < count();
    Evicting::truncate(tokens);
    if (forgets) clear_scores();  // fewer tokens than the budget have none yet
  }
  void observe(std::span<const float> weights) override {
    std::copy(weights.begin(), weights.end(), scores().begin());
  }

 private:
  int64_t victim() const override {
    const auto score = scores();
    return std::min_element(score.begin(), score.end(), is_lighter) - score.begin();
  }
};

}  // namespace

const RetentionEntry tova =
    Tova::entry({.name = "tova",
                 .help = "drops what the newest query attended to least",
                 .source = "TOVA, Oren et al. 2024 (arXiv:2401.06104); its code takes the mean over all "
                           "heads of a layer, which drop the same token",
                 .parameters = {budget_parameter()}});

}  // namespace kv::retention
