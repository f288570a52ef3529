// The keys of experiments in which a model reads texts.
#pragma once

#include "harness/config/axes.h"
#include "harness/config/key.h"

namespace kv::experiments {

inline const config::Key<int64_t> kStepTokensKey{
    "step_tokens", config::SharedTable::kMeasure, 1, config::tokens(1, config::kMaxTokens),
    "tokens of a step: 1 is decode, more is the faster chunked mode"};
inline const config::Key<int64_t> kPromptKey{"prompt", config::SharedTable::kMeasure, 0,
                                             config::tokens(0, config::kMaxTokens),
                                             "tokens of a sequence's first step"};
inline const config::Key<std::string> kPrefillKey{
    "prefill", config::SharedTable::kMeasure, "full", config::choice({"full", "stored"}),
    "full: the full f32 cache answers the prompt for all, and the others are given its K, V and queries; "
    "stored: each cache answers it from what it has stored"};
inline const config::Key<int64_t> kStatedContextKey{
    "stated_context", config::SharedTable::kMeasure, 0, config::tokens(0, config::kMaxTokens),
    "tokens of the context that verdicts speak of; 0: the model's longest"};

}  // namespace kv::experiments
