// The columns of a plan. Experiments that replay a trace share some of them.
#pragma once

#include "harness/planner/hit_columns.h"
#include "harness/tables/table_columns.h"

namespace kv::planner {

inline constexpr results::TextColumn kPlanStatus{
    "status", "", "fits; refuses: some requests; too_large: for so many users; unsupported"};
inline constexpr results::TextColumn kTrace{"trace", "",
                                            "the requests' file; empty for users of one context"};
inline constexpr results::IntegerColumn kMemoryBytes{"memory_bytes", "bytes", "of the machine"};
inline constexpr results::IntegerColumn kRoomBytes{"room_bytes", "bytes", "what is left for caches"};
inline constexpr results::IntegerColumn kHeldBytes{"held_bytes", "bytes",
                                                   "of sequences, at the peak; slack and tables included"};
inline constexpr results::TextColumn kBytesFrom{
    "bytes_from", "", "computed: by allocators without rows, or by the closed form"};
inline constexpr results::IntegerColumn kRequests{"requests", "", "that came"};
inline constexpr results::IntegerColumn kRefused{
    "refused", "", "requests longer than the context, or than the memory alone"};
inline constexpr results::IntegerColumn kUsersP50{
    "users_p50", "", "sequences that ran at once, median over the time in which any did"};
inline constexpr results::IntegerColumn kUsersPeak{"users_peak", "", "and the most"};
inline constexpr results::IntegerColumn kUsersMost{"users_most", "",
                                                   "of one context, for which there is room"};
inline constexpr results::IntegerColumn kPoolBlocks{"pool_blocks", "", "of paged groups, all layers"};
inline constexpr results::NumberColumn kSlackShare{
    "slack_share", "1", "of the bytes held, what is no filled row; mean over time"};
inline constexpr results::NumberColumn kPreemptionsPer1000{"preemptions_per_1000", "", "requests"};
inline constexpr results::NumberColumn kRecomputedShare{
    "recomputed_share", "1", "rows dropped and computed again / tokens of all requests"};
inline constexpr results::NumberColumn kPerplexityChange{"perplexity_change", "1",
                                                         "perplexity / that with a full f32 cache - 1"};
inline constexpr results::NumberColumn kPerplexityChangeCiLow{"perplexity_change_ci_low", "1",
                                                              "its 95 % interval"};
inline constexpr results::NumberColumn kPerplexityChangeCiHigh{"perplexity_change_ci_high", "1",
                                                               "its upper end"};
inline constexpr results::TextColumn kQualityFrom{
    "quality_from", "",
    "the run that measured perplexity, its model and context; unknown: it has no such codec and retention; "
    "empty: not asked"};
inline constexpr results::TextColumn kPlanTimesFrom{
    "times_from", "", "assumed: the roofline of the stated machine; empty: no times"};
inline constexpr results::NumberColumn kWaitP99S{"wait_p99_s", "s", "from arrival to admission"};
inline constexpr results::NumberColumn kTtftP50S{"ttft_p50_s", "s",
                                                 "from arrival to the first token, median of the requests"};
inline constexpr results::NumberColumn kTtftP99S{"ttft_p99_s", "s", "the 99th percentile"};
// A plan of users has its step's time here.
inline constexpr results::NumberColumn kTpotP50Ms{
    "tpot_p50_ms", "ms", "each further token, mean of a request; median of the requests"};
inline constexpr results::NumberColumn kTpotP99Ms{"tpot_p99_ms", "ms", "the 99th percentile"};
inline constexpr results::NumberColumn kSeconds{"seconds", "s", "until the last answer"};
inline constexpr results::NumberColumn kTokensPerS{"tokens_per_s", "tokens/s", "generated"};
inline constexpr auto kPlanColumns = results::column_list(
    tables::kModel, results::kVariant, kPlanStatus, results::kReason, kTrace, kMemoryBytes,
    tables::kWeightsBytes, kRoomBytes, kHeldBytes, kBytesFrom, kRequests, kRefused, kUsersP50, kUsersPeak,
    kUsersMost, kPoolBlocks, kSlackShare, kPreemptionsPer1000, kRecomputedShare, kHitRate, kHitRateAtAny,
    kPerplexityChange, kPerplexityChangeCiLow, kPerplexityChangeCiHigh, kQualityFrom, kPlanTimesFrom,
    kWaitP99S, kTtftP50S, kTtftP99S, kTpotP50Ms, kTpotP99Ms, kSeconds, kTokensPerS);
inline const results::Table kPlan{"the plan", {kPlanColumns.begin(), kPlanColumns.end()}};

}  // namespace kv::planner
