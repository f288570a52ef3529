// The columns of step and prompt times, their comparison with a baseline, and disturbances.
#pragma once

#include <string>

#include "harness/results/estimate.h"

namespace kv::measure {

inline constexpr results::NumberColumn kAppendP50Us{"append_p50_us", "us",
                                                    "storing one token a sequence; p50 is a median"};
inline constexpr results::NumberColumn kViewP50Us{
    "view_p50_us", "us", "making the kept rows readable; copies only in read=copy variants"};
inline constexpr results::NumberColumn kAttendP50Us{"attend_p50_us", "us", "attention over the kept rows"};
inline constexpr auto kStepP50Us =
    results::estimate<"step_p50_us", "step_ci_*_us">(
        "us", "append + view + attend; for a whole model also its projections and the rest",
        "95 % interval (over repetitions; results/README.md has the formula)")
        .called("step, p50");
inline constexpr results::NumberColumn kStepP90Us{"step_p90_us", "us", "90th percentile of all steps"};
inline constexpr results::NumberColumn kStepP99Us{"step_p99_us", "us", "99th percentile of all steps"};
inline constexpr results::NumberColumn kStepMaxUs{"step_max_us", "us", "slowest step"};
inline constexpr results::NumberColumn kReadGbps{
    "read_gbps", "GB/s",
    "stored bytes of K, V, scales and zero points that one attend reads / attend_p50_us; empty with device = "
    "cuda, which times attend_p50_us on the host"};
inline constexpr auto kStepColumns =
    results::column_list(kAppendP50Us, kViewP50Us, kAttendP50Us, kStepP50Us.value(), kStepP90Us, kStepP99Us,
                         kStepMaxUs, kStepP50Us.low, kStepP50Us.high, kReadGbps);

inline constexpr auto kColdAttendP50Us =
    results::estimate<"cold_attend_p50_us", "cold_ci_*_us">(
        "us", "attention rotating over enough caches to leave the last-level cache")
        .called("attention, cold");
inline constexpr auto kColdColumns = results::column_list(kColdAttendP50Us);

inline constexpr auto kGpuP50Us = results::estimate<"gpu_p50_us", "gpu_ci_*_us">(
    "us",
    "attention on cold rows by GPU events around its launches, all queued before the first begins; replaces "
    "cold_attend_p50_us with device = cuda");
inline constexpr results::IntegerColumn kGpuSmMhzLeast{
    "gpu_sm_mhz_least", "MHz",
    "GPU clock beside these times, counted by a kernel, in the slowest repetition"};
inline constexpr results::IntegerColumn kGpuSmMhzMost{
    "gpu_sm_mhz_most", "MHz", "GPU clock beside these times, counted by a kernel, in the fastest repetition"};
inline constexpr auto kGpuColumns = results::column_list(kGpuP50Us, kGpuSmMhzLeast, kGpuSmMhzMost);

inline constexpr auto kPrefillP50Us =
    results::estimate<"prefill_p50_us", "prefill_ci_*_us">(
        "us",
        "storing and attending the whole prompt, all layers and sequences; model: reading it, up to the "
        "first token's logits",
        "95 % interval (over repetitions; results/README.md has the formula)")
        .called("prompt, p50");
inline constexpr auto kPrefillTokensPerS =
    results::NumberColumn{"prefill_tokens_per_s", "tokens/s", "tokens of all sequences / prefill_p50_us"}
        .called("prompt tokens/s");
inline constexpr auto kPromptColumns = results::column_list(kPrefillP50Us, kPrefillTokensPerS);

inline constexpr auto kRatioP50 =
    results::estimate<"ratio_p50", "ratio_ci_*">(
        "1", "median step / median step of `versus`, over the interleaved repetitions",
        "interval, so wide that all verdicts of the sweep point are right together with 95 % (Holm)")
        .called("time / baseline");
inline constexpr results::NumberColumn kRatioConfidence{
    "ratio_confidence", "1",
    "confidence of the interval of ratio_p50 alone: 0.95 for one comparison, else more"};
inline constexpr auto kRatioColumns = results::column_list(kRatioP50, kRatioConfidence);

inline constexpr auto kColdRatioP50 =
    results::estimate<"cold_ratio_p50", "cold_ratio_ci_*">(
        "1",
        "median of cold_attend_p50_us or gpu_p50_us / that of `versus`, over the interleaved repetitions",
        "interval, with the confidence of ratio_p50's")
        .called("cold / baseline");
inline constexpr auto kColdRatioColumns = results::column_list(kColdRatioP50);

inline constexpr results::IntegerColumn kRepetitions{"repetitions", "", "number of interleaved repetitions"};
inline constexpr results::IntegerColumn kSampleCount{"samples", "",
                                                     "number of timed steps in all repetitions"};
inline constexpr auto kRepetitionColumns = results::column_list(kRepetitions, kSampleCount);

inline constexpr results::NumberColumn kStealShare{
    "steal_share", "1", "share of the processors' time that the hypervisor gave to other machines meanwhile"};
inline constexpr results::NumberColumn kOthersShare{
    "others_share", "1", "share of the processors' time that other processes took meanwhile"};
inline constexpr results::NumberColumn kDisturbedShare{
    "disturbed_share", "1",
    "timed runs during which threads waited for a processor for more than 2 % of the time / all that count"};
inline constexpr results::IntegerColumn kDiscardedRepetitions{
    "discarded_repetitions", "",
    "repetitions taken again because others held up over 10 % of their runs; after four, over 50 %"};
inline constexpr results::TextColumn kNoise{"noise", "", "disturbance of these times; empty for quiet ones"};
inline constexpr auto kNoiseColumns =
    results::column_list(kStealShare, kOthersShare, kDisturbedShare, kDiscardedRepetitions, kNoise);

// A whole model's step, beside its attention.
inline constexpr results::NumberColumn kProjectionsP50Us{"projections_p50_us", "us",
                                                         "products with weights, the classifier's included"};
inline constexpr results::NumberColumn kStateP50Us{
    "state_p50_us", "us", "linear layers' recurrence, which updates and reads their states"};
inline constexpr results::NumberColumn kRestP50Us{"rest_p50_us", "us",
                                                  "part of a step outside projections and cache"};

}  // namespace kv::measure
