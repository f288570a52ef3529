// The keys of speculate. Each length of drafts is an arm of a sweep point.
#pragma once

#include "harness/experiments/reading_keys.h"
#include "variants/model_cache/layer_specs.h"

namespace kv::experiments {

inline const config::Key<std::vector<int64_t>> kDraftTokensKey{
    "draft_tokens", config::SharedTable::kOwn, {4}, config::token_list(), "tokens that a draft proposes"};
inline const config::Key<std::string> kTargetKey{
    "target", config::SharedTable::kOwn, "contiguous/f16",
    config::text([](const std::string& spec) { parse_layer_specs(spec); }), "cache that verifies drafts"};

}  // namespace kv::experiments
