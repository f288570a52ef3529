// The columns that speculate alone writes.
#pragma once

#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::experiments {

inline constexpr auto kProposedTokens =
    results::IntegerColumn{"proposed_tokens", "tokens",
                           "speculate: tokens that the draft cache proposes a step"}
        .axis("drafts of {} tokens")
        .arm()
        .swept_by("draft_tokens");
inline constexpr results::TextColumn kTarget{"target", "",
                                             "speculate: cache that verifies the proposed tokens"};
inline constexpr results::IntegerColumn kSpeculatedTokens{"speculated_tokens", "tokens",
                                                          "speculate: tokens generated after each prompt"};
inline constexpr results::NumberColumn kAcceptance{
    "acceptance", "1", "speculate: accepted / proposed tokens, mean over the steps that verify"};
inline constexpr results::NumberColumn kAcceptanceCiLow{
    "acceptance_ci_low", "1", "lower end of the 95 % interval of acceptance (bootstrap over texts)"};
inline constexpr results::NumberColumn kAcceptanceCiHigh{"acceptance_ci_high", "1",
                                                         "upper end of the 95 % interval of acceptance"};
inline constexpr results::NumberColumn kTokensAStep{
    "tokens_a_step", "tokens", "speculate: generated tokens / steps of the target cache; 1 without drafts"};
inline constexpr results::NumberColumn kSpeedup{
    "speedup", "1",
    "speculate: time of the same tokens with the target cache alone / with drafts, median over the texts"};
inline constexpr results::NumberColumn kSpeedupCiLow{"speedup_ci_low", "1",
                                                     "lower end of the 95 % interval of speedup"};
inline constexpr results::NumberColumn kSpeedupCiHigh{"speedup_ci_high", "1",
                                                      "upper end of the 95 % interval of speedup"};
inline constexpr results::IntegerColumn kRoundedTexts{
    "rounded_texts", "",
    "speculate: texts that leave the one without drafts at a token whose margin is within rounding"};
inline constexpr auto kSpeculateColumns = results::column_list(
    kTarget, kProposedTokens, kSpeculatedTokens, kAcceptance, kAcceptanceCiLow, kAcceptanceCiHigh,
    kTokensAStep, kSpeedup, kSpeedupCiLow, kSpeedupCiHigh, kRoundedTexts);

}  // namespace kv::experiments
