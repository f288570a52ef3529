// The columns of a plan, besides those of replays.
#pragma once

#include "harness/planner/hit_rate.h"
#include "harness/planner/serving_columns.h"
#include "harness/tables/table_columns.h"

namespace kv::planner {

inline constexpr results::TextColumn kPlanStatus{
    "status", "", "fits; refuses: some requests; too_large: for so many users; unsupported"};
inline constexpr results::IntegerColumn kMemoryBytes{"memory_bytes", "bytes", "memory of the machine"};
// Columns of a replay under a plan's names.
inline constexpr results::IntegerColumn kHeldBytes{"held_bytes", "bytes", kHeldPeakBytes.meaning};
inline constexpr results::IntegerColumn kUsersP50{"users_p50", "", kRunningP50.meaning};
inline constexpr results::IntegerColumn kUsersPeak{"users_peak", "", kRunningPeak.meaning};
inline constexpr results::NumberColumn kSeconds{"seconds", "s", kServedS.meaning};
inline constexpr results::NumberColumn kTokensPerS{"tokens_per_s", "tokens/s", kServedTokensPerS.meaning};
inline constexpr results::TextColumn kBytesFrom{
    "bytes_from", "", "computed: by allocators without rows, or by the closed form"};
inline constexpr results::IntegerColumn kUsersMost{"users_most", "", "sequences of one context that fit"};
inline constexpr results::NumberColumn kSlackShare{
    "slack_share", "1", "bytes held beyond stored tokens / bytes held, mean over time"};
inline constexpr results::NumberColumn kRecomputedShare{
    "recomputed_share", "1", "tokens dropped and computed again / tokens of all requests"};
inline constexpr auto kPerplexityChange =
    results::estimate<"perplexity_change">("1", "perplexity / that with a full f32 cache - 1");
inline constexpr results::TextColumn kQualityFrom{
    "quality_from", "",
    "run that measured the perplexity, its model and context; unknown: no run with this codec and retention; "
    "empty: not asked"};
inline constexpr auto kPlanColumns = results::column_list(
    tables::kModel, results::kVariant, kPlanStatus, results::kReason, kTraceFile, kMemoryBytes,
    tables::kWeightsBytes, kRoomBytes, kHeldBytes, kBytesFrom, kRequests, kRefused, kUsersP50, kUsersPeak,
    kUsersMost, kPoolBlocks, kSlackShare, kPreemptionsPer1000, kRecomputedShare, kHitRate, kHitRateAtAny,
    kPerplexityChange, kQualityFrom, kTimesFrom, kWaitP99S.value(), kTtftP50S.value(), kTtftP99S.value(),
    kTpotP50Ms.value(), kTpotP99Ms.value(), kSeconds, kTokensPerS);
inline const results::Table kPlan{"the plan", {kPlanColumns.begin(), kPlanColumns.end()}};

}  // namespace kv::planner
