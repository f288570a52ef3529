// The axes and keys of replay besides those of requests: the machine that serves them, and the swept values.
#pragma once

#include <string>
#include <vector>

#include "harness/experiments/replay/columns.h"
#include "harness/experiments/requests.h"

namespace kv::experiments {

extern const config::Axis<std::string> kMemoryAxis;
extern const config::Axis<int64_t> kReplayStepTokensAxis;

// The source of a step's time: the cells of a results folder, and the rates of a stated machine, 0 if not stated.
struct ClockConfig {
  std::string measured;
  double read_gbps = 0.0, flops = 0.0, link_gbps = 0.0;
};

extern const config::Key<std::string> kPreemptKey;
extern const config::Key<int64_t> kWeightsKey;
extern const config::Key<std::vector<int64_t>> kPrefixBlocksKey;
extern const config::Key<ClockConfig> kClockKey;

inline constexpr const config::AnyAxis* kReplayAxes[] = {&kTraceAxis, &kArrivalsAxis, &kMemoryAxis,
                                                         &kReplayStepTokensAxis};
inline constexpr const config::AnyKey* kReplayKeys[] = {
    &kPromptLengthsKey, &kOutputLengthsKey, &kPreemptKey,   &kPrefixKey,       &kRequestsKey, &kWeightsKey,
    &kMaxRunningKey,    &kShareKey,         &kWatermarkKey, &kPrefixBlocksKey, &kClockKey,    &kLimitKey};

// Throws std::invalid_argument for keys that do not go together.
void check_replay_keys(const config::Section& own, const config::ExperimentConfig& sweep);

}  // namespace kv::experiments
