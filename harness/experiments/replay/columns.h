// The columns that replays alone write.
#pragma once

#include "harness/experiments/serving_columns.h"

namespace kv::experiments {

inline constexpr auto kMachine =
    results::TextColumn{"machine", "", "memory of the machine, as written in the config"}.axis(
        "{} of memory");
inline constexpr results::IntegerColumn kWeightsHeldBytes{"weights_held_bytes", "bytes",
                                                          "memory held by the weights"};
inline constexpr auto kStepTokens =
    results::IntegerColumn{
        "step_tokens", "tokens",
        "largest number of tokens in a step: one for each sequence that decodes, the rest of prompts"}
        .axis("steps of {} tokens");
inline constexpr auto kPreempt =
    results::TextColumn{"preempt", "", "treatment of a preempted sequence's rows: recompute or swap"}.one_of(
        "recompute swap");
inline constexpr results::NumberColumn kDistinctShare{
    "distinct_share", "1", "prompt blocks that no earlier request had / all, if blocks have ids"};
inline constexpr auto kClusters =
    results::TextColumn{"clusters", "",
                        "units that the bootstrap of intervals draws: sessions, or minutes of arrival if the "
                        "trace has no sessions"}
        .one_of("sessions minutes");
inline constexpr results::IntegerColumn kClusterCount{
    "cluster_count", "",
    "number of sessions or minutes that intervals are drawn from; fewer than 5 give no interval"};
inline constexpr results::IntegerColumn kSwappedTokens{"swapped_tokens", "tokens",
                                                       "rows moved over the link and back"};
inline constexpr results::NumberColumn kHitRateCurve{
    "hit_rate_curve", "1",
    "share of blocks found by a prefix cache of room_bytes with least-recently-used eviction, requests one "
    "after another"};
inline constexpr results::NumberColumn kHitRateAtAny{"hit_rate_at_any", "1",
                                                     "share of blocks found by a prefix cache without limit"};
inline constexpr auto kCountsFrom =
    results::TextColumn{"counts_from", "", "computed: counted by the caches' own allocators, without rows"}
        .one_of("computed");
inline constexpr results::NumberColumn kClockBeyondShare{
    "clock_beyond_share", "1", "share of the steps' time in steps beyond the clock's measured cells"};
inline constexpr results::NumberColumn kClockAssumedShare{
    "clock_assumed_share", "1", "share of the steps' time that comes from the rates of a stated machine"};
inline constexpr auto kGoodShare = results::estimate<"good_share">(
    "1", "good requests / all, refused ones included", "95 % interval (bootstrap over clusters)");
inline constexpr auto kReplayColumns = results::column_list(
    kArrivals, kMachine, kWeightsHeldBytes, kRoomBytes, kStepTokens, kPreempt, kRequests, kTraceS,
    kPromptP50Tokens, kPromptP99Tokens, kOutputP50Tokens, kOutputP99Tokens, kDistinctShare, kClusters,
    kClusterCount, kRefused, kRunningP50, kRunningP99, kRunningPeak, kWaitingP50, kWaitingP99, kWaitingPeak,
    kPoolBlocks, kHeldPeakBytes, kPayloadMeanBytes, kSlackMeanBytes, kOtherMeanBytes, kCachedMeanBytes,
    kFragmentationShare, kPreemptions, kPreemptionsPer1000, kRecomputedTokens, kSwappedTokens, kHitRate,
    kHitRateCurve, kHitRateAtAny, kCountsFrom, kTimesFrom, kClockResidual, kClockBeyondShare,
    kClockAssumedShare, kServedS, kServedTokensPerS.value(), kWaitP99S, kTtftP50S, kTtftP99S, kTpotP50Ms,
    kTpotP99Ms, kLimitTtftS, kLimitTpotMs, kGoodShare, kGoodputPerS);

// hits.csv: one row a point of a trace's hit-rate curve.
inline constexpr results::IntegerColumn kCapacityBytes{"capacity_bytes", "bytes",
                                                       "size of capacity_blocks blocks of this variant"};
inline const results::Table kHits{
    "hits.csv",
    [] {
      results::ColumnList columns{&results::kCell, &results::kVariant, &results::kBatch, &results::kSeqLen,
                                  &kCapacityBytes};
      columns.insert(columns.end(), planner::kHitColumns.begin(), planner::kHitColumns.end());
      columns.push_back(&results::kHost);
      return columns;
    }(),
    &kHitRateCurve};

}  // namespace kv::experiments
