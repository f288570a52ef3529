// The columns that speculate alone writes.
#pragma once

#include "harness/results/cell_columns.h"
#include "harness/results/estimate.h"
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
inline constexpr auto kAcceptance = results::estimate<"acceptance">(
    "1", "speculate: accepted / proposed tokens, mean over the steps that verify",
    "95 % interval (bootstrap over texts)");
inline constexpr results::NumberColumn kTokensAStep{
    "tokens_a_step", "tokens", "speculate: generated tokens / steps of the target cache; 1 without drafts"};
inline constexpr auto kSpeedup = results::estimate<"speedup">(
    "1",
    "speculate: time of the same tokens with the target cache alone / with drafts, median over the texts");
inline constexpr results::IntegerColumn kRoundedTexts{
    "rounded_texts", "",
    "speculate: texts that leave the one without drafts at a token whose margin is within rounding"};
inline constexpr auto kSpeculateColumns = results::column_list(
    kTarget, kProposedTokens, kSpeculatedTokens, kAcceptance, kTokensAStep, kSpeedup, kRoundedTexts);

}  // namespace kv::experiments
