// The columns that serve alone writes; it shares those of planner/serving_columns.h.
#pragma once

#include "harness/experiments/requests.h"
#include "harness/planner/served_clock.h"

namespace kv::experiments {

inline constexpr auto kBatching =
    results::TextColumn{
        "batching", "",
        "static (batches that begin and end together, prompts padded to the longest), whole (continuous "
        "batches, prompts whole), or the largest number of tokens in a step of continuous batches; of a "
        "server, open (requests come when they do) or the users of a closed loop"}
        .axis("batching {}")
        .arm()
        .swept_by("batching");
inline constexpr auto kSharing =
    results::TextColumn{"sharing", "", "on: prompts that begin alike share blocks of rows"}
        .one_of("on off")
        .axis("sharing {}")
        .swept_by("sharing");
inline constexpr auto kRoom =
    results::TextColumn{
        "room", "",
        "memory for caches, as written in the config; all: for max_running requests of the whole context"}
        .axis("room {}")
        .swept_by("room");
inline constexpr results::NumberColumn kLengthScale{"length_scale", "1",
                                                    "tokens of a request here / in the trace"};
inline constexpr results::NumberColumn kRateScale{"rate_scale", "1", "requests a second here / in the trace"};
inline constexpr results::IntegerColumn kServedTimes{"served_times", "",
                                                     "times that all requests were served"};
inline constexpr results::IntegerColumn kRoundedAnswers{
    "rounded_answers", "",
    "requests whose answer leaves the one alone at a token whose margin is within rounding; most of all "
    "repetitions"};
inline constexpr results::IntegerColumn kRequestErrors{
    "request_errors", "", "requests that a server ended with an error; most of all repetitions"};
inline constexpr auto kRequestsPerS =
    results::estimate<"requests_per_s">("1/s", "answered requests / served_s",
                                        "95 % interval (over repetitions)")
        .called("requests/s");
inline constexpr results::NumberColumn kTtftP90S{
    "ttft_p90_s", "s", "time from arrival to the first token, 90th percentile over the requests"};
inline constexpr results::NumberColumn kTpotP90Ms{
    "tpot_p90_ms", "ms", "time of each further token, mean of a request; 90th percentile over the requests"};
inline constexpr results::NumberColumn kRunningMean{"running_mean", "",
                                                    "running sequences, mean over the time of all steps"};
inline constexpr results::NumberColumn kHeldMeanBytes{
    "held_mean_bytes", "bytes",
    "bytes held by sequences and cached prefixes, mean over the time of all steps; free blocks excluded"};
inline constexpr results::NumberColumn kPaddingShare{"padding_share", "1",
                                                     "padding / all tokens that steps compute"};
inline constexpr results::NumberColumn kProjectionsTimeShare{"projections_time_share", "1",
                                                             "products with weights / time of all steps"};
inline constexpr results::NumberColumn kAttentionTimeShare{
    "attention_time_share", "1", "storing and attending, all sequences / time of all steps"};
inline constexpr results::NumberColumn kSchedulingTimeShare{
    "scheduling_time_share", "1",
    "scheduler, allocator, sequences that come and go, checks / time of all steps"};

// The same requests on a clock fitted to these steps, without a model.
inline constexpr results::NumberColumn kReplayTtftP50S{"replay_ttft_p50_s", "s", "ttft_p50_s of the replay"};
inline constexpr results::NumberColumn kReplayTtftP99S{"replay_ttft_p99_s", "s", "ttft_p99_s of the replay"};
inline constexpr results::NumberColumn kReplayTpotP50Ms{"replay_tpot_p50_ms", "ms",
                                                        "tpot_p50_ms of the replay"};
inline constexpr results::NumberColumn kReplayTpotP99Ms{"replay_tpot_p99_ms", "ms",
                                                        "tpot_p99_ms of the replay"};
inline constexpr results::NumberColumn kReplayServedS{"replay_served_s", "s", "served_s of the replay"};
inline constexpr results::IntegerColumn kReplayPreemptions{"replay_preemptions", "",
                                                           "preemptions of the replay"};
inline constexpr results::NumberColumn kReplayHitRate{"replay_hit_rate", "1", "hit_rate of the replay"};
inline constexpr results::NumberColumn kReplayErrorP50{
    "replay_error_p50", "1",
    "|replay / served - 1|, median over ttft_p50_s, ttft_p99_s, tpot_p50_ms, tpot_p99_ms and served_s"};
inline constexpr results::NumberColumn kReplayErrorMax{"replay_error_max", "1",
                                                       "|replay / served - 1|, the largest of the five"};
inline constexpr auto kReplayCounts =
    results::TextColumn{"replay_counts", "",
                        "steps, preemptions, hits and times of a replay whose steps take as long as those "
                        "that ran: equal or different"}
        .one_of("equal different");

inline constexpr auto kServeColumns = results::column_list(
    kArrivals, kBatching, kSharing, kRoom, kRoomBytes, kLengthScale, kRateScale, kRequests, kTraceS,
    kPromptP50Tokens, kPromptP99Tokens, kOutputP50Tokens, kOutputP99Tokens, kServedTimes, kRoundedAnswers,
    kRequestErrors, kRefused, kRunningMean, kRunningP50, kRunningP99, kRunningPeak, kWaitingP50, kWaitingP99,
    kWaitingPeak, kPoolBlocks, kHeldPeakBytes, kHeldMeanBytes, kPayloadMeanBytes, kSlackMeanBytes,
    kOtherMeanBytes, kCachedMeanBytes, kFragmentationShare, kPreemptions, kPreemptionsPer1000,
    kRecomputedTokens, kPrefixHitRate, kPaddingShare, kTimesFrom, kServedS, kLimitTtftS, kLimitTpotMs,
    kGoodputPerS, kRequestsPerS, kServedTokensPerS, kTtftP50S, kTtftP90S, kTtftP99S, kTpotP50Ms, kTpotP90Ms,
    kTpotP99Ms, kProjectionsTimeShare, kAttentionTimeShare, kSchedulingTimeShare, kClockResidual,
    kReplayTtftP50S, kReplayTtftP99S, kReplayTpotP50Ms, kReplayTpotP99Ms, kReplayServedS, kReplayPreemptions,
    kReplayHitRate, kReplayErrorP50, kReplayErrorMax, kReplayCounts);

}  // namespace kv::experiments
