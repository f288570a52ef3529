// The columns of steps that verify drafts at once and truncate refused ones, beside steps of one token.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::measure {

inline constexpr results::IntegerColumn kDraftTokens{
    "draft_tokens", "tokens", "drafts that a step verifies at once beside its own token"};
inline constexpr results::NumberColumn kDraftAccept{
    "draft_accept", "1", "probability that a draft is accepted if all before it were"};
inline constexpr results::NumberColumn kDraftStaysMean{
    "draft_stays_mean", "tokens",
    "tokens that a draft step keeps after truncation: its own and the accepted drafts, mean"};
inline constexpr results::NumberColumn kDraftStepP50Us{
    "draft_step_p50_us", "us",
    "append and attention of draft_tokens + 1 tokens a sequence, and the truncation"};
inline constexpr results::NumberColumn kDraftStepCiLowUs{
    "draft_step_ci_low_us", "us", "lower end of the 95 % interval of draft_step_p50_us"};
inline constexpr results::NumberColumn kDraftStepCiHighUs{
    "draft_step_ci_high_us", "us", "upper end of the 95 % interval of draft_step_p50_us"};
inline constexpr results::NumberColumn kDraftRatioP50{
    "draft_ratio_p50", "1",
    "time of a kept token, draft_step_p50_us / draft_stays_mean, over step_p50_us; the proposal of drafts is "
    "excluded"};
inline constexpr results::NumberColumn kDraftRatioCiLow{"draft_ratio_ci_low", "1",
                                                        "lower end of the 95 % interval of draft_ratio_p50"};
inline constexpr results::NumberColumn kDraftRatioCiHigh{"draft_ratio_ci_high", "1",
                                                         "upper end of the 95 % interval of draft_ratio_p50"};
inline constexpr results::TextColumn kDraftRefused{
    "draft_refused", "", "reason that the cache cannot be truncated to the accepted drafts"};
inline constexpr auto kDraftColumns = results::column_list(
    kDraftTokens, kDraftAccept, kDraftStaysMean, kDraftStepP50Us, kDraftStepCiLowUs, kDraftStepCiHighUs,
    kDraftRatioP50, kDraftRatioCiLow, kDraftRatioCiHigh, kDraftRefused);

}  // namespace kv::measure
