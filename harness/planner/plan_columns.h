// The columns of a plan. Experiments that replay a trace share some of them.
#pragma once

#include "harness/planner/hit_rate.h"
#include "harness/results/estimate.h"
#include "harness/tables/table_columns.h"

namespace kv::planner {

inline constexpr results::TextColumn kPlanStatus{
    "status", "", "fits; refuses: some requests; too_large: for so many users; unsupported"};
inline constexpr results::TextColumn kTrace{"trace", "",
                                            "file of the requests; empty for users of one context"};
inline constexpr results::IntegerColumn kMemoryBytes{"memory_bytes", "bytes", "memory of the machine"};
inline constexpr results::IntegerColumn kRoomBytes{"room_bytes", "bytes", "memory left for caches"};
inline constexpr results::IntegerColumn kHeldBytes{
    "held_bytes", "bytes", "peak of the bytes held by sequences; slack and tables included"};
inline constexpr results::TextColumn kBytesFrom{
    "bytes_from", "", "computed: by allocators without rows, or by the closed form"};
inline constexpr results::IntegerColumn kRequests{"requests", "", "requests that arrived"};
inline constexpr results::IntegerColumn kRefused{
    "refused", "", "requests longer than the context, or too long for the memory even alone"};
inline constexpr results::IntegerColumn kUsersP50{
    "users_p50", "", "sequences that ran at once, median over the time in which any did"};
inline constexpr results::IntegerColumn kUsersPeak{"users_peak", "", "sequences that ran at once, maximum"};
inline constexpr results::IntegerColumn kUsersMost{"users_most", "", "sequences of one context that fit"};
inline constexpr results::IntegerColumn kPoolBlocks{"pool_blocks", "",
                                                    "blocks of the pools of paged groups, over all layers"};
inline constexpr results::NumberColumn kSlackShare{
    "slack_share", "1", "bytes held beyond stored tokens / bytes held, mean over time"};
inline constexpr results::NumberColumn kPreemptionsPer1000{"preemptions_per_1000", "",
                                                           "preemptions per 1000 requests"};
inline constexpr results::NumberColumn kRecomputedShare{
    "recomputed_share", "1", "tokens dropped and computed again / tokens of all requests"};
inline constexpr auto kPerplexityChange =
    results::estimate<"perplexity_change">("1", "perplexity / that with a full f32 cache - 1");
inline constexpr results::TextColumn kQualityFrom{
    "quality_from", "",
    "run that measured the perplexity, its model and context; unknown: no run with this codec and retention; "
    "empty: not asked"};
inline constexpr results::TextColumn kPlanTimesFrom{
    "times_from", "", "assumed: the roofline of the stated machine; empty: no times"};
inline constexpr auto kWaitP99S = results::estimate<"wait_p99_s">(
    "s", "time from arrival to admission, 99th percentile", "95 % interval (bootstrap over clusters)");
inline constexpr auto kTtftP50S =
    results::estimate<"ttft_p50_s">("s", "time from arrival to the first token, median over the requests",
                                    "95 % interval (bootstrap over clusters)");
inline constexpr auto kTtftP99S =
    results::estimate<"ttft_p99_s">("s",
                                    "time from arrival to the first token, 99th percentile over the requests",
                                    "95 % interval (bootstrap over clusters)")
        .called("TTFT, p99");
// A plan of users has its step's time here.
inline constexpr auto kTpotP50Ms = results::estimate<"tpot_p50_ms">(
    "ms", "time per token after the first, mean of a request; median over the requests",
    "95 % interval (bootstrap over clusters)");
inline constexpr auto kTpotP99Ms =
    results::estimate<"tpot_p99_ms">(
        "ms", "time per token after the first, mean of a request; 99th percentile over the requests",
        "95 % interval (bootstrap over clusters)")
        .called("TPOT, p99");
inline constexpr results::NumberColumn kSeconds{"seconds", "s", "time until the last answer"};
inline constexpr results::NumberColumn kTokensPerS{"tokens_per_s", "tokens/s", "generated tokens per second"};
inline constexpr auto kPlanColumns = results::column_list(
    tables::kModel, results::kVariant, kPlanStatus, results::kReason, kTrace, kMemoryBytes,
    tables::kWeightsBytes, kRoomBytes, kHeldBytes, kBytesFrom, kRequests, kRefused, kUsersP50, kUsersPeak,
    kUsersMost, kPoolBlocks, kSlackShare, kPreemptionsPer1000, kRecomputedShare, kHitRate, kHitRateAtAny,
    kPerplexityChange, kQualityFrom, kPlanTimesFrom, kWaitP99S.value(), kTtftP50S.value(), kTtftP99S.value(),
    kTpotP50Ms.value(), kTpotP99Ms.value(), kSeconds, kTokensPerS);
inline const results::Table kPlan{"the plan", {kPlanColumns.begin(), kPlanColumns.end()}};

}  // namespace kv::planner
