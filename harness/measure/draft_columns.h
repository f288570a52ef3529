// The columns of steps that verify drafts at once and truncate refused ones, beside steps of one token.
#pragma once

#include <string>

#include "harness/results/estimate.h"

namespace kv::measure {

inline constexpr results::IntegerColumn kDraftTokens{
    "draft_tokens", "tokens", "drafts that a step verifies at once beside its own token"};
inline constexpr results::NumberColumn kDraftAccept{
    "draft_accept", "1", "probability that a draft is accepted if all before it were"};
inline constexpr results::NumberColumn kDraftStaysMean{
    "draft_stays_mean", "tokens",
    "tokens that a draft step keeps after truncation: its own and the accepted drafts, mean"};
inline constexpr auto kDraftStepP50Us = results::estimate<"draft_step_p50_us", "draft_step_ci_*_us">(
    "us", "append and attention of draft_tokens + 1 tokens a sequence, and the truncation");
inline constexpr auto kDraftRatioP50 = results::estimate<"draft_ratio_p50", "draft_ratio_ci_*">(
    "1",
    "time of a kept token, draft_step_p50_us / draft_stays_mean, over step_p50_us; the proposal of drafts is "
    "excluded");
inline constexpr results::TextColumn kDraftRefused{
    "draft_refused", "", "reason that the cache cannot be truncated to the accepted drafts"};
inline constexpr auto kDraftColumns = results::column_list(kDraftTokens, kDraftAccept, kDraftStaysMean,
                                                           kDraftStepP50Us, kDraftRatioP50, kDraftRefused);

}  // namespace kv::measure
