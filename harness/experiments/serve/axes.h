// The axes and keys of serve besides those of requests.
#pragma once

#include "harness/experiments/requests.h"
#include "harness/experiments/serve/columns.h"
#include "harness/planner/scheduler.h"

namespace kv::experiments {

extern const config::Axis<std::string> kRoomAxis, kSharingAxis;
// Each is an arm of a sweep point.
extern const config::Key<std::vector<std::string>> kBatchingKey;
extern const config::Key<int64_t> kContextTokensKey;
extern const config::Key<double> kLengthScaleKey, kRateScaleKey;

inline constexpr const config::AnyAxis* kServeAxes[] = {&kTraceAxis, &kArrivalsAxis, &kRoomAxis,
                                                        &kSharingAxis};
inline constexpr const config::AnyKey* kServeKeys[] = {&kBatchingKey,  &kContextTokensKey, &kLengthScaleKey,
                                                       &kRateScaleKey, &kPromptLengthsKey, &kOutputLengthsKey,
                                                       &kPrefixKey,    &kRequestsKey,      &kMaxRunningKey,
                                                       &kWatermarkKey, &kLimitKey};

// "whole" and "static" have no limit of a step's tokens.
planner::SchedulerSettings scheduler_of(const std::string& batching);

}  // namespace kv::experiments
