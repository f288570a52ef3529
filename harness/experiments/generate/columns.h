// The columns that generate alone writes.
#pragma once

#include <string>

#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::experiments {

inline constexpr auto kTemperature =
    results::NumberColumn{"temperature", "", "generate: 0 is greedy"}.axis("temperature {}", true).swept_by("temperature");
inline constexpr results::IntegerColumn kGeneratedTokens{"generated_tokens", "tokens",
                                                         "generate: of each sequence, after its prompt"};
inline constexpr results::NumberColumn kCommonTokensP50{
    "common_tokens_p50", "tokens",
    "generate: before the text differs from the full f32 cache's, median of the sequences"};
inline constexpr results::IntegerColumn kCommonTokensMin{"common_tokens_min", "tokens", "and the fewest"};
inline constexpr results::IntegerColumn kSameTexts{"same_texts", "",
                                                   "generate: sequences that never differ from it"};
inline constexpr results::IntegerColumn kSamplesPerPrompt{
    "samples_per_prompt", "", "generate: texts of each prompt, where there are several"};
inline constexpr results::IntegerColumn kSamplesHeldBytes{
    "samples_held_bytes", "bytes",
    "held by all samples, with slack; what they share once. The columns before count one "
    "sample a prompt"};
inline constexpr results::IntegerColumn kSamplesSharedBytes{
    "samples_shared_bytes", "bytes",
    "rows that samples read where another has stored them; each sample alone would hold its "
    "own"};
inline constexpr auto kGenerateColumns =
    results::column_list(kTemperature, kGeneratedTokens, kCommonTokensP50, kCommonTokensMin, kSameTexts,
                         kSamplesPerPrompt, kSamplesHeldBytes, kSamplesSharedBytes);

// texts.csv: a row a sequence.
inline constexpr results::IntegerColumn kSequence{"sequence", "", "of the batch, from 0"};
inline constexpr results::IntegerColumn kTextSample{"sample", "",
                                                    "of those that go on from the prompt, from 0"};
inline constexpr results::IntegerColumn kCommonTokens{
    "common_tokens", "tokens",
    "generated before the text differs from the full f32 cache's; empty if it never does"};
inline constexpr results::TextColumn kPrompt{"prompt", "", "what both go on from"};
inline constexpr results::TextColumn kText{"text", "", "with this cache"};
inline constexpr results::TextColumn kFullText{"full_text", "",
                                               "with the full f32 cache and the same random numbers"};
inline const results::Table kTexts{
    "texts.csv",
    {&results::kCell, &results::kVariant, &kTemperature, &kSequence, &kTextSample, &kCommonTokens, &kPrompt,
     &kText, &kFullText, &results::kHost}};

}  // namespace kv::experiments
