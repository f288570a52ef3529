// The columns of a hit-rate curve: a point of a trace's blocks and a capacity. The plan's table of hits and hits.csv share them.
#pragma once

#include "harness/results/table.h"

namespace kv::planner {

inline constexpr results::IntegerColumn kBlockTokens{"block_tokens", "tokens",
                                                     "of a block of the prefix cache"};
inline constexpr results::IntegerColumn kCapacityBlocks{"capacity_blocks", "", "blocks that it holds"};
inline constexpr results::NumberColumn kHitRate{"hit_rate", "1",
                                                "blocks of prompts found / all, where the least recently "
                                                "used goes; computed, requests one after another"};
inline constexpr results::NumberColumn kBeladyHitRate{
    "belady_hit_rate", "1",
    "where what is used again last goes, or is not taken at all: no policy finds more"};
inline constexpr results::NumberColumn kHitRateAtAny{
    "hit_rate_at_any", "1", "in a cache without limit: (blocks - distinct) / blocks"};
inline constexpr auto kHitColumns =
    results::column_list(kBlockTokens, kCapacityBlocks, kHitRate, kBeladyHitRate, kHitRateAtAny);
inline const results::Table kHitCurve{"the hit-rate curve", {kHitColumns.begin(), kHitColumns.end()}};

}  // namespace kv::planner
