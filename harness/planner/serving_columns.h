// The columns of experiments in which requests are served, on a simulated clock or in truth. Bytes, blocks and counts are
// computed; times_from names the source of times.
#pragma once

#include "harness/results/estimate.h"

namespace kv::planner {
inline namespace columns {

inline constexpr std::string_view kOverClusters = "95 % interval (bootstrap over clusters)";

// The requests' file, empty for drawn ones. A cell has its name as `workload`.
inline constexpr results::TextColumn kTraceFile{"trace", "", "file of the requests"};
inline constexpr results::IntegerColumn kRoomBytes{"room_bytes", "bytes", "memory left for caches"};
inline constexpr results::IntegerColumn kRequests{"requests", "", "requests that arrived"};
inline constexpr results::IntegerColumn kRefused{
    "refused", "", "requests longer than the context, or too long for the memory even alone"};
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
inline constexpr results::IntegerColumn kPoolBlocks{"pool_blocks", "",
                                                    "blocks of the pools of paged groups, over all layers"};
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
inline constexpr results::NumberColumn kPreemptionsPer1000{"preemptions_per_1000", "",
                                                           "preemptions per 1000 requests"};
inline constexpr results::IntegerColumn kRecomputedTokens{"recomputed_tokens", "tokens",
                                                          "rows dropped by preemption and computed again"};
inline constexpr results::IntegerColumn kSwappedTokens{"swapped_tokens", "tokens",
                                                       "rows moved over the link and back"};
inline constexpr results::NumberColumn kPrefixHitRate{
    "hit_rate", "1",
    "prompt tokens found in the prefix cache / all, of a server as it says; empty without a prefix cache"};
inline constexpr results::NumberColumn kHitRateCurve{
    "hit_rate_curve", "1",
    "share of blocks found by a prefix cache of room_bytes with least-recently-used eviction, requests one "
    "after another"};
inline constexpr auto kCountsFrom =
    results::TextColumn{"counts_from", "", "computed: counted by the caches' own allocators, without rows"}
        .one_of("computed");
inline constexpr auto kTimesFrom =
    results::TextColumn{"times_from", "",
                        "source of times: measured (cells of this machine), computed (beyond these cells), "
                        "or assumed (roofline of a stated machine)"}
        .one_of("measured computed assumed");
inline constexpr results::NumberColumn kClockResidual{
    "clock_residual", "1", "largest |measured / fitted - 1| over the cells of the clock"};
inline constexpr results::NumberColumn kClockBeyondShare{
    "clock_beyond_share", "1", "share of the steps' time in steps beyond the clock's measured cells"};
inline constexpr results::NumberColumn kClockAssumedShare{
    "clock_assumed_share", "1", "share of the steps' time that comes from the rates of a stated machine"};
inline constexpr results::NumberColumn kServedS{"served_s", "s", "time until the last answer"};
inline constexpr auto kServedTokensPerS =
    results::estimate<"served_tokens_per_s">("tokens/s", "generated / served_s",
                                             "95 % interval (over repetitions)")
        .called("output tok/s");
inline constexpr auto kWaitP99S =
    results::estimate<"wait_p99_s">("s", "time from arrival to admission, 99th percentile", kOverClusters);
inline constexpr auto kTtftP50S = results::estimate<"ttft_p50_s">(
    "s", "time from arrival to the first token, median over the requests", kOverClusters);
inline constexpr auto kTtftP99S =
    results::estimate<"ttft_p99_s">(
        "s", "time from arrival to the first token, 99th percentile over the requests", kOverClusters)
        .called("TTFT, p99");
// A plan of users has its step's time here.
inline constexpr auto kTpotP50Ms = results::estimate<"tpot_p50_ms">(
    "ms", "time per token after the first, mean of a request; median over the requests", kOverClusters);
inline constexpr auto kTpotP99Ms =
    results::estimate<"tpot_p99_ms">(
        "ms", "time per token after the first, mean of a request; 99th percentile over the requests",
        kOverClusters)
        .called("TPOT, p99");
inline constexpr results::NumberColumn kLimitTtftS{"limit_ttft_s", "s",
                                                   "limit of a good request's time to the first token"};
inline constexpr results::NumberColumn kLimitTpotMs{
    "limit_tpot_ms", "ms", "limit of a good request's mean time of each further token"};
inline constexpr auto kGoodShare =
    results::estimate<"good_share">("1", "good requests / all, refused ones included", kOverClusters);
inline constexpr auto kGoodputPerS =
    results::estimate<"goodput_per_s">(
        "1/s", "good requests / served_s",
        "95 % interval (replay: good_share's at the same rate; serve: over repetitions)")
        .called("good requests/s");

}  // namespace columns
}  // namespace kv::planner
