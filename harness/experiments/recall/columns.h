// The columns that recall alone writes.
#pragma once

#include <string>

#include "harness/results/column.h"

namespace kv::experiments {

inline constexpr auto kDistance =
    results::IntegerColumn{"distance", "tokens", "recall: tokens from the passage to its copy"}
        .axis("distance {}", true)
        .swept_by("distance");
inline constexpr auto kPassageTokens =
    results::IntegerColumn{"passage_tokens", "tokens", "recall: tokens of one copy of the passage"}
        .axis("passage of {} tokens")
        .swept_by("passage");
inline constexpr auto kRecallColumns = results::column_list(kDistance, kPassageTokens);

}  // namespace kv::experiments
