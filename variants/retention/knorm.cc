// knorm: keeps keys of low L2 norm (Devoto et al. 2024, arXiv:2406.11430), which tend to draw the most
// attention.
//
// A slot's score is the squared norm of its key as it comes, before any codec; the highest is overwritten, of
// equal ones the lowest slot. A token is admitted whatever its norm, so that its own query sees it, and
// competes from the next token on; beyond that nothing is protected, as in the paper. The authors' code
// prunes once, after the prompt; here the budget holds from the first token on.
#include <algorithm>

#include "variants/list.h"
#include "variants/retention/evicting.h"
#include "variants/retention/positions.h"

namespace kv::retention {
namespace {

class KNorm : public Evicting {
 public:
  KNorm(int64_t budget, const RetentionContext& context) : Evicting(budget, context, SlotScores::kOfKeys) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<KNorm>(*this); }

 private:
  float first_score(std::span<const float> key) const override {
    double sum = 0.0;
    for (const float x : key) sum += double{x} * x;
    return static_cast<float>(sum);
  }
  int64_t victim() const override {
    const auto score = scores();
    return std::max_element(score.begin(), score.end()) - score.begin();
  }
};

std::unique_ptr<Retention> make_knorm(const Stage& stage, const RetentionContext& context) {
  return std::make_unique<KNorm>(stage.rows("budget", context.max_tokens), context);
}
int64_t knorm_slots(const Stage& stage, const SequenceLengths& lengths) {
  return std::min(lengths.tokens, stage.rows("budget", lengths.max_tokens));
}
int64_t knorm_metadata_bytes(const Stage& stage, int64_t max_tokens) {
  return Evicting::metadata_bytes(stage.rows("budget", max_tokens), max_tokens, SlotScores::kOfKeys);
}

}  // namespace

const RetentionEntry knorm{
    {.name = "knorm",
     .help = "drops the keys of the highest L2 norm",
     .source = "L2 norm, Devoto et al. 2024 (arXiv:2406.11430)",
     .parameters = {Parameter::rows("budget", "256", {32}, "rows kept, the query's own included"),
                    positions_parameter()}},
    make_knorm,
    knorm_slots,
    knorm_metadata_bytes,
    /*keeps_all=*/false};

}  // namespace kv::retention
