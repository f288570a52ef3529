// The total time of a growth run's appends, and growth.csv, its every step.
#pragma once

#include "harness/measure/sample_columns.h"
#include "harness/results/estimate.h"

namespace kv::experiments {

inline constexpr auto kAppendTotalUs = results::estimate<"append_total_us", "append_total_ci_*_us">(
                                           "us",
                                           "growth: append + view of all steps from an empty cache on, "
                                           "reallocations included; median over repetitions",
                                           "95 % interval (Student's, over repetitions)")
                                           .called("all appends");
inline constexpr auto kAppendTotalRatio =
    results::estimate<"append_total_ratio_p50", "append_total_ratio_ci_*">(
        "1", "growth: append_total_us / that of `versus`, over the interleaved repetitions",
        "interval, so wide that all of the sweep point are right together with 95 % (Holm)")
        .called("all appends / baseline");
inline constexpr auto kGrowthColumns = results::column_list(kAppendTotalUs, kAppendTotalRatio);

inline constexpr results::IntegerColumn kToken{"token", "tokens", "tokens of a sequence after this step"};
inline constexpr results::IntegerColumn kBytesWorkspace{"bytes_workspace", "bytes",
                                                        "scratch buffers after this step"};
inline constexpr results::IntegerColumn kBytesMoved{"bytes_copied", "bytes",
                                                    "bytes moved by growth and slicing since the first step"};

inline const results::Table kGrowthSteps{
    "growth.csv",
    {&results::kCell, &results::kVariant, &results::kBatch, &results::kSeqLen, &measure::kRepetition, &kToken,
     &measure::kAppendUs, &measure::kViewUs, &measure::kAttendUs, &measure::kStepUs, &results::kBytesPayload,
     &results::kBytesMetadata, &results::kBytesSlack, &kBytesWorkspace, &kBytesMoved, &results::kHost}};

}  // namespace kv::experiments
