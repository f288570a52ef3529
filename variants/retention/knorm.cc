// knorm: keeps keys of low L2 norm (Devoto et al. 2024, arXiv:2406.11430), which tend to draw the most attention.
//
// A slot's score is the squared norm of its key before any codec; the highest is overwritten, of equal ones the lowest
// slot. A token is admitted whatever its norm, so that its own query sees it, and competes from the next token on; nothing
// else is protected, as in the paper. The authors' code prunes once, after the prompt; here the budget holds from the
// first token on.
#include "variants/list.h"
#include "variants/retention/evicting.h"

namespace kv::retention {
namespace {

class KNorm : public EvictingPolicy<KNorm, SlotScores::kOfKeys> {
  using EvictingPolicy::EvictingPolicy;

  float first_score(std::span<const float> key) const override {
    double sum = 0.0;
    for (const float x : key) sum += double{x} * x;
    return static_cast<float>(sum);
  }
  int64_t victim() const override { return std::ranges::max_element(scores()) - scores().begin(); }
};

}  // namespace

const RetentionEntry knorm =
    KNorm::entry({.name = "knorm",
                  .help = "drops the keys of the highest L2 norm",
                  .source = "L2 norm, Devoto et al. 2024 (arXiv:2406.11430); its code prunes once, after the "
                            "prompt, and does not spare the newest token",
                  .parameters = {budget_parameter()}});

}  // namespace kv::retention
