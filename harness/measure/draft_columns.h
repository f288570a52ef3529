// The columns of steps that verify drafts at once and truncate refused ones, beside steps of one token.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::measure {

inline constexpr results::IntegerColumn kDraftTokens{
    "draft_tokens", "tokens", "of a step that verifies so many at once, besides its own"};
inline constexpr results::NumberColumn kDraftAccept{
    "draft_accept", "1", "the probability that one is accepted if those before it were"};
inline constexpr results::NumberColumn kDraftStaysMean{
    "draft_stays_mean", "tokens",
    "of such a step what is left after the truncation: its own token and those accepted"};
inline constexpr results::NumberColumn kDraftStepP50Us{
    "draft_step_p50_us", "us",
    "append and attention of draft_tokens + 1 tokens a sequence, and the truncation"};
inline constexpr results::NumberColumn kDraftStepCiLowUs{"draft_step_ci_low_us", "us", "its 95 % interval"};
inline constexpr results::NumberColumn kDraftStepCiHighUs{"draft_step_ci_high_us", "us", "its upper end"};
inline constexpr results::NumberColumn kDraftRatioP50{
    "draft_ratio_p50", "1",
    "time of a token that stays, draft_step_p50_us / draft_stays_mean, over step_p50_us; "
    "what proposes drafts is not in it"};
inline constexpr results::NumberColumn kDraftRatioCiLow{"draft_ratio_ci_low", "1", "its 95 % interval"};
inline constexpr results::NumberColumn kDraftRatioCiHigh{"draft_ratio_ci_high", "1", "its upper end"};
inline constexpr results::TextColumn kDraftRefused{"draft_refused", "",
                                                   "why the cache cannot go back to what was accepted"};
inline constexpr auto kDraftColumns = results::column_list(
    kDraftTokens, kDraftAccept, kDraftStaysMean, kDraftStepP50Us, kDraftStepCiLowUs, kDraftStepCiHighUs,
    kDraftRatioP50, kDraftRatioCiLow, kDraftRatioCiHigh, kDraftRefused);

}  // namespace kv::measure
