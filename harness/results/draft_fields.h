// What decode says of steps that verify drafts.
#pragma once

#include <string>
#include <vector>

#include "harness/results/schema.h"

namespace kv::results {

struct CellResult;

// A step that verifies drafts at once and truncates those refused, beside steps of one token.
struct DraftResult {
  Integer draft_tokens;
  Number draft_accept, draft_stays_mean, draft_step_p50_us, draft_step_ci_low_us, draft_step_ci_high_us;
  Number draft_ratio_p50, draft_ratio_ci_low, draft_ratio_ci_high;
  std::string draft_refused;
};
std::vector<Field<CellResult>> draft_fields();

}  // namespace kv::results
