// The axis and the column of probe.
#pragma once

#include "harness/config/key.h"
#include "harness/results/cell_columns.h"

namespace kv::experiments {

inline constexpr auto kTailTokens =
    results::IntegerColumn{"tail_tokens", "tokens", "tokens that are stepped one by one after the prompt"}
        .axis("last {} tokens")
        .swept_by("tail");
inline constexpr results::NumberColumn kProbeNorm{"probe_norm", "1", "L2 norm of the last token's outputs"};
inline constexpr auto kProbeColumns = results::column_list(kTailTokens, kProbeNorm);

inline const config::Axis<int64_t> kTailAxis{
    kTailTokens,    "tail", config::SharedTable::kSweep, {}, config::token_list(), "tokens after the prompt",
    "tail = [1, 4]"};

}  // namespace kv::experiments
