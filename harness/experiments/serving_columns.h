// The columns of experiments in which requests are served, on a simulated clock or in truth. Bytes, blocks and counts are
// computed; times_from names the source of times.
#pragma once

#include "harness/planner/plan_columns.h"
#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::experiments {

using planner::kRoomBytes, planner::kRequests, planner::kRefused, planner::kPoolBlocks,
    planner::kPreemptionsPer1000, planner::kWaitP99S, planner::kTtftP50S, planner::kTtftP99S,
    planner::kTpotP50Ms, planner::kTpotP99Ms;
inline constexpr auto kArrivals =
    results::TextColumn{"arrivals", "",
                        "arrival times of requests: trace (its own), or drawn: poisson(requests a second), "
                        "gamma(requests a second, standard deviation of a gap / its mean)"}
        .axis("{}");
inline constexpr results::NumberColumn kTraceS{"trace_s", "s", "time from the first request to the last"};
inline constexpr results::IntegerColumn kPromptP50Tokens{
    "prompt_p50_tokens", "tokens", "prompt length of the requests, served or not; median"};
inline constexpr results::IntegerColumn kPromptP99Tokens{
    "prompt_p99_tokens", "tokens", "prompt length of the requests, served or not; 99th percentile"};
inline constexpr results::IntegerColumn kOutputP50Tokens{"output_p50_tokens", "tokens",
                                                         "answer length of the requests; median"};
inline constexpr results::IntegerColumn kOutputP99Tokens{"output_p99_tokens", "tokens",
                                                         "answer length of the requests; 99th percentile"};
inline constexpr results::IntegerColumn kRunningP50{"running_p50", "",
                                                    "running sequences, median over the time of all steps"};
inline constexpr results::IntegerColumn kRunningP99{
    "running_p99", "", "running sequences, 99th percentile over the time of all steps"};
inline constexpr results::IntegerColumn kRunningPeak{"running_peak", "", "running sequences, maximum"};
inline constexpr results::IntegerColumn kWaitingP50{"waiting_p50", "",
                                                    "waiting requests, median over the time of all steps"};
inline constexpr results::IntegerColumn kWaitingP99{
    "waiting_p99", "", "waiting requests, 99th percentile over the time of all steps"};
inline constexpr results::IntegerColumn kWaitingPeak{"waiting_peak", "", "waiting requests, maximum"};
inline constexpr auto kHeldPeakBytes =
    results::IntegerColumn{
        "held_peak_bytes", "bytes",
        "peak of the bytes held by sequences: rows, reserved rows, tables and buffers; free blocks excluded"}
        .called("held at the peak");
inline constexpr results::NumberColumn kPayloadMeanBytes{"payload_mean_bytes", "bytes",
                                                         "filled rows, mean over the time of all steps"};
inline constexpr results::NumberColumn kSlackMeanBytes{
    "slack_mean_bytes", "bytes",
    "rows reserved for sequences and not filled, mean over the time of all steps"};
inline constexpr results::NumberColumn kOtherMeanBytes{
    "other_mean_bytes", "bytes",
    "block tables, scores, codecs' raw rows and states, mean over the time of all steps"};
inline constexpr results::NumberColumn kCachedMeanBytes{
    "cached_mean_bytes", "bytes",
    "blocks of prefixes that no sequence used, mean over the time of all steps"};
inline constexpr results::NumberColumn kFragmentationShare{
    "fragmentation_share", "1",
    "internal fragmentation: slack_mean_bytes / (slack_mean_bytes + payload_mean_bytes)"};
inline constexpr results::IntegerColumn kPreemptions{"preemptions", "", "number of preemptions"};
inline constexpr results::IntegerColumn kRecomputedTokens{"recomputed_tokens", "tokens",
                                                          "rows dropped by preemption and computed again"};
inline constexpr results::NumberColumn kPrefixHitRate{
    "hit_rate", "1",
    "prompt tokens found in the prefix cache / all, of a server as it says; empty without a prefix cache"};
inline constexpr auto kTimesFrom =
    results::TextColumn{"times_from", "",
                        "source of times: measured (cells of this machine), computed (beyond these cells), "
                        "or assumed (roofline of a stated machine)"}
        .one_of("measured computed assumed");
inline constexpr results::NumberColumn kClockResidual{
    "clock_residual", "1", "largest |measured / fitted - 1| over the cells of the clock"};
inline constexpr results::NumberColumn kServedS{"served_s", "s", "time until the last answer"};
inline constexpr auto kServedTokensPerS =
    results::estimate<"served_tokens_per_s">("tokens/s", "generated / served_s",
                                             "95 % interval (over repetitions)")
        .called("output tok/s");
inline constexpr results::NumberColumn kLimitTtftS{"limit_ttft_s", "s",
                                                   "limit of a good request's time to the first token"};
inline constexpr results::NumberColumn kLimitTpotMs{
    "limit_tpot_ms", "ms", "limit of a good request's mean time of each further token"};
inline constexpr auto kGoodputPerS =
    results::estimate<"goodput_per_s">(
        "1/s", "good requests / served_s",
        "95 % interval (replay: good_share's at the same rate; serve: over repetitions)")
        .called("good requests/s");

// replay.csv: one row a stretch of a replay's time. Values are means over the stretch.
inline constexpr results::NumberColumn kTimeS{
    "time_s", "s", "end of the stretch on the replay's clock; the row's values are means over the stretch"};
inline constexpr results::NumberColumn kRunning{"running", "",
                                                "running sequences; empty while there is nothing to do"};
inline constexpr results::NumberColumn kWaiting{"waiting", "", "waiting requests"};
inline constexpr results::NumberColumn kPayloadBytes{"payload_bytes", "bytes", "filled rows"};
inline constexpr results::NumberColumn kSlackBytes{"slack_bytes", "bytes",
                                                   "rows reserved for sequences and not filled"};
inline constexpr results::NumberColumn kOtherBytes{"other_bytes", "bytes",
                                                   "block tables, scores, codecs' raw rows and states"};
inline constexpr results::NumberColumn kCachedBytes{"cached_bytes", "bytes",
                                                    "blocks of prefixes that no sequence uses"};
inline const results::Table kMoments{
    "replay.csv",
    {&results::kCell, &results::kVariant, &results::kBatch, &results::kSeqLen, &kTimeS, &kRunning, &kWaiting,
     &kPayloadBytes, &kSlackBytes, &kOtherBytes, &kCachedBytes, &results::kHost},
    &kServedS};

}  // namespace kv::experiments
