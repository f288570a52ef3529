// Columns, axes and keys of replay alone, besides those of requests.
#pragma once

#include <string>
#include <vector>

#include "harness/config/config.h"
#include "harness/experiments/requests.h"
#include "harness/io/bytes.h"

namespace kv::experiments {

using planner::kHitRateAtAny;

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
inline constexpr auto kReplayColumns = results::column_list(
    kArrivals, kMachine, kWeightsHeldBytes, kRoomBytes, kStepTokens, kPreempt, kRequests, kTraceS,
    kPromptP50Tokens, kPromptP99Tokens, kOutputP50Tokens, kOutputP99Tokens, kDistinctShare, kClusters,
    kClusterCount, kRefused, kRunningP50, kRunningP99, kRunningPeak, kWaitingP50, kWaitingP99, kWaitingPeak,
    kPoolBlocks, kHeldPeakBytes, kPayloadMeanBytes, kSlackMeanBytes, kOtherMeanBytes, kCachedMeanBytes,
    kFragmentationShare, kPreemptions, kPreemptionsPer1000, kRecomputedTokens, kSwappedTokens, kPrefixHitRate,
    kHitRateCurve, kHitRateAtAny, kCountsFrom, kTimesFrom, kClockResidual, kClockBeyondShare,
    kClockAssumedShare, kServedS, kServedTokensPerS.value(), kWaitP99S, kTtftP50S, kTtftP99S, kTpotP50Ms,
    kTpotP99Ms, kLimitTtftS, kLimitTpotMs, kGoodShare, kGoodputPerS);

// hits.csv: one row a point of a trace's hit-rate curve.
inline constexpr results::IntegerColumn kCapacityBytes{"capacity_bytes", "bytes",
                                                       "size of capacity_blocks blocks of this variant"};
inline const results::Table kHits{
    "hits.csv",
    {&results::kCell, &results::kVariant, &results::kBatch, &results::kSeqLen, &kCapacityBytes,
     &planner::kBlockTokens, &planner::kCapacityBlocks, &planner::kHitRate, &planner::kBeladyHitRate,
     &planner::kHitRateAtAny, &results::kHost},
    &kHitRateCurve};

// The source of a step's time: the cells of a results folder, and the rates of a stated machine, 0 if not stated.
struct ClockConfig {
  std::string measured;
  planner::Device rates = {};
};

inline constexpr double kMostRate = 1e30;

inline void check_bytes(const std::string& text) { io::parse_bytes(text, "memory"); }

inline ClockConfig read_clock(config::Section& section, const std::string& key, const ClockConfig& fallback) {
  const bool given = section.has(key);
  config::Section device = section.section(key);
  ClockConfig clock{.measured = device.text("measured", ""),
                    .rates = {.read_gbps = device.number("read_gbps", 0.0, 1e-9, kMostRate),
                              .flops = device.number("flops", 0.0, 1e-9, kMostRate),
                              .link_gbps = device.number("link_gbps", 0.0, 1e-9, kMostRate)}};
  if (!given) return fallback;
  device.refuse_the_rest();
  const bool stated = clock.rates.read_gbps > 0.0 && clock.rates.flops > 0.0;
  if (!stated && (clock.measured.empty() || clock.rates.read_gbps > 0.0 || clock.rates.flops > 0.0))
    section.fail(key,
                 "needs read_gbps and flops, as in {read_gbps = 1008, flops = 165e12}, or measured = "
                 "\"FOLDER\", the results of a run");
  return clock;
}

inline const config::Axis<std::string> kMemoryAxis{kMachine,
                                                   "memory",
                                                   config::SharedTable::kOwn,
                                                   {},
                                                   config::text_list(check_bytes),
                                                   "memory of the machine",
                                                   "memory = [\"24GB\"], the machine's"};
inline const config::Axis<int64_t> kReplayStepTokensAxis{
    kStepTokens, "step_tokens",        config::SharedTable::kOwn,
    {2048},      config::token_list(), "largest number of tokens in a step"};

inline const config::Key<std::string> kPreemptKey{
    "preempt", config::SharedTable::kOwn, "recompute", config::choice({"recompute", "swap"}),
    "a preempted sequence's rows are computed again, or moved over a link"};
inline const config::Key<int64_t> kWeightsKey{
    "weights", config::SharedTable::kOwn, 0,
    [](config::Section& section, const std::string& key, const int64_t& fallback) {
      return section.bytes(key, fallback, 1, INT64_MAX);
    },
    "bytes of the weights; 0: from the model's file"};
inline const config::Key<std::vector<int64_t>> kPrefixBlocksKey{
    "prefix_blocks",
    config::SharedTable::kOwn,
    {},
    config::token_list(),
    "blocks of hit-rate curves; none: the trace's own"};
inline const config::Key<ClockConfig> kClockKey{
    "device", config::SharedTable::kOwn, {}, read_clock, "source of a step's time"};

inline constexpr const config::AnyAxis* kReplayAxes[] = {&kTraceAxis, &kArrivalsAxis, &kMemoryAxis,
                                                         &kReplayStepTokensAxis};
inline constexpr const config::AnyKey* kReplayKeys[] = {
    &kPromptLengthsKey, &kOutputLengthsKey, &kPreemptKey,   &kPrefixKey,       &kRequestsKey, &kWeightsKey,
    &kMaxRunningKey,    &kShareKey,         &kWatermarkKey, &kPrefixBlocksKey, &kClockKey,    &kLimitKey};

// Throws std::invalid_argument for keys that do not go together.
inline void check_replay_keys(const config::Section& own, const config::ExperimentConfig& sweep) {
  const config::Settings& r = sweep.settings;
  const bool drawn = r[kTraceAxis].front().empty(), has_prefix = r[kPrefixKey] > 0;
  if (has_prefix && !drawn) own.fail("prefix", "applies to drawn requests only, not to a trace");
  if (r[kShareKey] > 0 && drawn && !has_prefix)
    own.fail("share", "needs a trace with ids of blocks, or drawn requests with a prefix in common");
  if (r[kPreemptKey] == "swap" && r[kClockKey].rates.link_gbps == 0.0)
    own.fail("preempt", planner::kSwapNeedsLink);
  if (drawn && !has_prefix && !r[kPrefixBlocksKey].empty())
    own.fail("prefix_blocks", "needs a trace with ids of blocks, or drawn requests with a prefix in common");
}

}  // namespace kv::experiments
