#include "harness/results/draft_fields.h"

#include "harness/results/cell_result.h"

namespace kv::results {

std::vector<Field<CellResult>> draft_fields() {
  using C = CellResult;
  return written_by<C>(
      "decode",
      std::vector<Field<C>>{
          {"draft_tokens", "tokens", &C::draft_tokens,
           "of a step that verifies so many at once, besides its own"},
          {"draft_accept", "1", &C::draft_accept,
           "the probability that one is accepted if those before it were"},
          {"draft_stays_mean", "tokens", &C::draft_stays_mean,
           "of such a step what is left after the truncation: its own token and those accepted"},
          {"draft_step_p50_us", "us", &C::draft_step_p50_us,
           "append and attention of draft_tokens + 1 tokens a sequence, and the truncation"},
          {"draft_step_ci_low_us", "us", &C::draft_step_ci_low_us, "its 95 % interval"},
          {"draft_step_ci_high_us", "us", &C::draft_step_ci_high_us, "its upper end"},
          {"draft_ratio_p50", "1", &C::draft_ratio_p50,
           "time of a token that stays, draft_step_p50_us / draft_stays_mean, over step_p50_us; what "
           "proposes drafts is not in it"},
          {"draft_ratio_ci_low", "1", &C::draft_ratio_ci_low, "its 95 % interval"},
          {"draft_ratio_ci_high", "1", &C::draft_ratio_ci_high, "its upper end"},
          {"draft_refused", "", &C::draft_refused, "why the cache cannot go back to what was accepted"},
      });
}

}  // namespace kv::results
