// The columns of a hit-rate curve: a point of a trace's blocks and a capacity. The plan's table of hits and hits.csv share them.
#pragma once

#include "harness/results/table.h"

namespace kv::planner {

inline constexpr results::IntegerColumn kBlockTokens{"block_tokens", "tokens",
                                                     "tokens of a block of the prefix cache"};
inline constexpr results::IntegerColumn kCapacityBlocks{"capacity_blocks", "",
                                                        "blocks that the prefix cache holds"};
inline constexpr results::NumberColumn kHitRate{
    "hit_rate", "1",
    "prompt blocks found / all, with least-recently-used eviction; computed, requests one after another"};
inline constexpr results::NumberColumn kBeladyHitRate{
    "belady_hit_rate", "1",
    "prompt blocks found / all, with Belady's optimal eviction, which may also reject a block: the upper "
    "bound of every policy"};
inline constexpr results::NumberColumn kHitRateAtAny{
    "hit_rate_at_any", "1",
    "prompt blocks found / all in a cache without limit: (blocks - distinct) / blocks"};
inline constexpr auto kHitColumns =
    results::column_list(kBlockTokens, kCapacityBlocks, kHitRate, kBeladyHitRate, kHitRateAtAny);
inline const results::Table kHitCurve{"the hit-rate curve", {kHitColumns.begin(), kHitColumns.end()}};

}  // namespace kv::planner
