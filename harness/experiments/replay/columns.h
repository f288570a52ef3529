// The columns of replays: requests through caches' own allocators on a simulated clock. Bytes, blocks and counts are
// computed; times_from names the source of times.
#pragma once

#include <string>

#include "harness/planner/hit_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::experiments {

inline constexpr auto kArrivals =
    results::TextColumn{"arrivals", "",
                        "when requests come: trace, its own times; or drawn: poisson(requests a second), "
                        "gamma(requests a second, standard deviation of a gap / its mean)"}
        .axis("{}");
inline constexpr auto kMachine =
    results::TextColumn{"machine", "", "memory of the machine, as the config has it"}.axis("{} of memory");
inline constexpr results::IntegerColumn kWeightsHeldBytes{"weights_held_bytes", "bytes", "of that"};
inline constexpr results::IntegerColumn kRoomBytes{"room_bytes", "bytes", "what is left for caches"};
inline constexpr auto kStepTokens =
    results::IntegerColumn{"step_tokens", "tokens",
                           "of a step at most: one of each that decodes, the rest prompts"}
        .axis("steps of {} tokens");
inline constexpr auto kPreempt =
    results::TextColumn{"preempt", "", "what becomes of the rows of a sequence that gives up its room"}
        .one_of("recompute swap");
inline constexpr results::IntegerColumn kRequests{"requests", "", "that came"};
inline constexpr results::NumberColumn kTraceS{"trace_s", "s", "from the first request to the last"};
inline constexpr results::IntegerColumn kPromptP50Tokens{"prompt_p50_tokens", "tokens",
                                                         "of the requests, served or not"};
inline constexpr results::IntegerColumn kPromptP99Tokens{"prompt_p99_tokens", "tokens", "likewise"};
inline constexpr results::IntegerColumn kOutputP50Tokens{"output_p50_tokens", "tokens",
                                                         "of the requests' answers"};
inline constexpr results::IntegerColumn kOutputP99Tokens{"output_p99_tokens", "tokens", "likewise"};
inline constexpr results::NumberColumn kDistinctShare{
    "distinct_share", "1", "prompt blocks that no earlier request had / all, where they have ids"};
inline constexpr auto kClusters =
    results::TextColumn{
        "clusters", "",
        "what intervals draw again as a whole: sessions; minutes of arrival where the trace has "
        "none"}
        .one_of("sessions minutes");
inline constexpr results::IntegerColumn kClusterCount{"cluster_count", "",
                                                      "of these; fewer than 5 give no interval"};
inline constexpr results::IntegerColumn kRefused{
    "refused", "", "requests longer than the context, or than the memory alone"};
inline constexpr results::IntegerColumn kRunningP50{
    "running_p50", "", "sequences that ran at once, median over the time of all steps"};
inline constexpr results::IntegerColumn kRunningP99{"running_p99", "", "the 99th percentile"};
inline constexpr results::IntegerColumn kRunningPeak{"running_peak", "", "and the most"};
inline constexpr results::IntegerColumn kWaitingP50{"waiting_p50", "", "requests that waited, likewise"};
inline constexpr results::IntegerColumn kWaitingP99{"waiting_p99", "", "the 99th percentile"};
inline constexpr results::IntegerColumn kWaitingPeak{"waiting_peak", "", "and the most"};
inline constexpr results::IntegerColumn kPoolBlocks{"pool_blocks", "", "of paged groups, all layers"};
inline constexpr results::IntegerColumn kHeldPeakBytes{
    "held_peak_bytes", "bytes",
    "of sequences: rows, what is reserved for them, tables and buffers; free blocks left out"};
inline constexpr results::NumberColumn kPayloadMeanBytes{
    "payload_mean_bytes", "bytes", "rows that are filled, mean over the time of all steps"};
inline constexpr results::NumberColumn kSlackMeanBytes{"slack_mean_bytes", "bytes",
                                                       "reserved for sequences and not filled, likewise"};
inline constexpr results::NumberColumn kOtherMeanBytes{
    "other_mean_bytes", "bytes", "block tables, scores, codecs' raw rows, states, likewise"};
inline constexpr results::NumberColumn kCachedMeanBytes{"cached_mean_bytes", "bytes",
                                                        "blocks of prefixes that no sequence used, likewise"};
inline constexpr results::NumberColumn kFragmentationShare{
    "fragmentation_share", "1",
    "internal fragmentation: slack_mean_bytes / (slack_mean_bytes + payload_mean_bytes)"};
inline constexpr results::IntegerColumn kPreemptions{"preemptions", "",
                                                     "how often a sequence gave up its room"};
inline constexpr results::NumberColumn kPreemptionsPer1000{"preemptions_per_1000", "", "requests"};
inline constexpr results::IntegerColumn kRecomputedTokens{"recomputed_tokens", "tokens",
                                                          "rows dropped and computed again"};
inline constexpr results::IntegerColumn kSwappedTokens{"swapped_tokens", "tokens",
                                                       "rows moved over the link, and back"};
inline constexpr results::NumberColumn kHitRate{
    "hit_rate", "1", "tokens of prompts that the replay's own prefix cache had / all; empty without one"};
inline constexpr results::NumberColumn kHitRateCurve{
    "hit_rate_curve", "1",
    "blocks found by a prefix cache of room_bytes, least recently used, one request after "
    "another"};
inline constexpr results::NumberColumn kHitRateAtAny{"hit_rate_at_any", "1", "by one without limit"};
inline constexpr auto kCountsFrom =
    results::TextColumn{"counts_from", "", "computed: counted by the caches' own allocators, without rows"}
        .one_of("computed");
inline constexpr auto kTimesFrom =
    results::TextColumn{"times_from", "",
                        "measured: cells of this machine; computed: beyond these; assumed: the roofline of a "
                        "stated machine"}
        .one_of("measured computed assumed");
inline constexpr results::NumberColumn kClockResidual{
    "clock_residual", "1", "largest of |measured / fitted - 1| over the cells of the clock"};
inline constexpr results::NumberColumn kClockBeyondShare{
    "clock_beyond_share", "1", "of the time of all steps, in those beyond these cells"};
inline constexpr results::NumberColumn kClockAssumedShare{"clock_assumed_share", "1",
                                                          "likewise, by the rates of a stated machine"};
inline constexpr results::NumberColumn kServedS{"served_s", "s", "until the last answer"};
inline constexpr results::NumberColumn kServedTokensPerS{"served_tokens_per_s", "tokens/s",
                                                         "generated / served_s"};
inline constexpr results::NumberColumn kWaitP99S{"wait_p99_s", "s", "from arrival to admission"};
inline constexpr results::NumberColumn kWaitP99SCiLow{"wait_p99_s_ci_low", "s",
                                                      "95 % interval (bootstrap over clusters)"};
inline constexpr results::NumberColumn kWaitP99SCiHigh{"wait_p99_s_ci_high", "s", "its upper end"};
inline constexpr results::NumberColumn kTtftP50S{"ttft_p50_s", "s",
                                                 "from arrival to the first token, median of the requests"};
inline constexpr results::NumberColumn kTtftP50SCiLow{"ttft_p50_s_ci_low", "s",
                                                      "95 % interval (bootstrap over clusters)"};
inline constexpr results::NumberColumn kTtftP50SCiHigh{"ttft_p50_s_ci_high", "s", "its upper end"};
inline constexpr results::NumberColumn kTtftP99S{"ttft_p99_s", "s", "the 99th percentile"};
inline constexpr results::NumberColumn kTtftP99SCiLow{"ttft_p99_s_ci_low", "s",
                                                      "95 % interval (bootstrap over clusters)"};
inline constexpr results::NumberColumn kTtftP99SCiHigh{"ttft_p99_s_ci_high", "s", "its upper end"};
inline constexpr results::NumberColumn kTpotP50Ms{
    "tpot_p50_ms", "ms", "each further token, mean of a request; median of the requests"};
inline constexpr results::NumberColumn kTpotP50MsCiLow{"tpot_p50_ms_ci_low", "ms",
                                                       "95 % interval (bootstrap over clusters)"};
inline constexpr results::NumberColumn kTpotP50MsCiHigh{"tpot_p50_ms_ci_high", "ms", "its upper end"};
inline constexpr results::NumberColumn kTpotP99Ms{"tpot_p99_ms", "ms", "the 99th percentile"};
inline constexpr results::NumberColumn kTpotP99MsCiLow{"tpot_p99_ms_ci_low", "ms",
                                                       "95 % interval (bootstrap over clusters)"};
inline constexpr results::NumberColumn kTpotP99MsCiHigh{"tpot_p99_ms_ci_high", "ms", "its upper end"};
inline constexpr results::NumberColumn kLimitTtftS{"limit_ttft_s", "s",
                                                   "a request is good whose first token comes within it"};
inline constexpr results::NumberColumn kLimitTpotMs{"limit_tpot_ms", "ms",
                                                    "and whose further ones come within this, in the mean"};
inline constexpr results::NumberColumn kGoodShare{"good_share", "1", "good requests / all, refused ones too"};
inline constexpr results::NumberColumn kGoodShareCiLow{"good_share_ci_low", "1",
                                                       "95 % interval (bootstrap over clusters)"};
inline constexpr results::NumberColumn kGoodShareCiHigh{"good_share_ci_high", "1", "its upper end"};
inline constexpr results::NumberColumn kGoodputPerS{"goodput_per_s", "1/s", "good requests / served_s"};
inline constexpr results::NumberColumn kGoodputPerSCiLow{"goodput_per_s_ci_low", "1/s",
                                                         "good_share's interval at the same rate"};
inline constexpr results::NumberColumn kGoodputPerSCiHigh{"goodput_per_s_ci_high", "1/s", "its upper end"};
inline constexpr auto kReplayColumns = results::column_list(
    kArrivals, kMachine, kWeightsHeldBytes, kRoomBytes, kStepTokens, kPreempt, kRequests, kTraceS,
    kPromptP50Tokens, kPromptP99Tokens, kOutputP50Tokens, kOutputP99Tokens, kDistinctShare, kClusters,
    kClusterCount, kRefused, kRunningP50, kRunningP99, kRunningPeak, kWaitingP50, kWaitingP99, kWaitingPeak,
    kPoolBlocks, kHeldPeakBytes, kPayloadMeanBytes, kSlackMeanBytes, kOtherMeanBytes, kCachedMeanBytes,
    kFragmentationShare, kPreemptions, kPreemptionsPer1000, kRecomputedTokens, kSwappedTokens, kHitRate,
    kHitRateCurve, kHitRateAtAny, kCountsFrom, kTimesFrom, kClockResidual, kClockBeyondShare,
    kClockAssumedShare, kServedS, kServedTokensPerS, kWaitP99S, kWaitP99SCiLow, kWaitP99SCiHigh, kTtftP50S,
    kTtftP50SCiLow, kTtftP50SCiHigh, kTtftP99S, kTtftP99SCiLow, kTtftP99SCiHigh, kTpotP50Ms, kTpotP50MsCiLow,
    kTpotP50MsCiHigh, kTpotP99Ms, kTpotP99MsCiLow, kTpotP99MsCiHigh, kLimitTtftS, kLimitTpotMs, kGoodShare,
    kGoodShareCiLow, kGoodShareCiHigh, kGoodputPerS, kGoodputPerSCiLow, kGoodputPerSCiHigh);

// replay.csv: one row a stretch of a replay's time. Values are means over the stretch.
inline constexpr results::NumberColumn kTimeS{
    "time_s", "s", "on the replay's clock, the end of the stretch; values are means over it"};
inline constexpr results::NumberColumn kRunning{"running", "",
                                                "sequences that run; none while nothing is there to do"};
inline constexpr results::NumberColumn kWaiting{"waiting", "", "requests that wait"};
inline constexpr results::NumberColumn kPayloadBytes{"payload_bytes", "bytes", "rows that are filled"};
inline constexpr results::NumberColumn kSlackBytes{"slack_bytes", "bytes",
                                                   "reserved for sequences and not filled"};
inline constexpr results::NumberColumn kOtherBytes{"other_bytes", "bytes",
                                                   "block tables, scores, codecs' raw rows, states"};
inline constexpr results::NumberColumn kCachedBytes{"cached_bytes", "bytes",
                                                    "blocks of prefixes that no sequence uses"};
inline const results::Table kMoments{
    "replay.csv",
    {&results::kCell, &results::kVariant, &results::kBatch, &results::kSeqLen, &kTimeS, &kRunning, &kWaiting,
     &kPayloadBytes, &kSlackBytes, &kOtherBytes, &kCachedBytes}};

// hits.csv: one row a point of a trace's hit-rate curve.
inline constexpr results::IntegerColumn kCapacityBytes{"capacity_bytes", "bytes",
                                                       "rows of capacity_blocks, of this variant"};
inline const results::Table kHits{
    "hits.csv", [] {
      results::ColumnList columns{&results::kCell, &results::kVariant, &results::kBatch, &results::kSeqLen,
                                  &kCapacityBytes};
      columns.insert(columns.end(), planner::kHitColumns.begin(), planner::kHitColumns.end());
      return columns;
    }()};

}  // namespace kv::experiments
