// The total time of a growth run's appends, and growth.csv, its every step.
#pragma once

#include "harness/measure/sample_columns.h"

namespace kv::experiments {

inline constexpr auto kAppendTotalUs =
    results::NumberColumn{
        "append_total_us", "us",
        "growth: append + view of all steps from an empty cache on, reallocations included; median over "
        "repetitions"}
        .called("all appends");
inline constexpr results::NumberColumn kAppendTotalCiLowUs{
    "append_total_ci_low_us", "us",
    "lower end of the 95 % interval of append_total_us (Student's, over repetitions)"};
inline constexpr results::NumberColumn kAppendTotalCiHighUs{
    "append_total_ci_high_us", "us", "upper end of the 95 % interval of append_total_us"};
inline constexpr auto kAppendTotalRatio =
    results::NumberColumn{"append_total_ratio_p50", "1",
                          "growth: append_total_us / that of `versus`, over the interleaved repetitions"}
        .called("all appends / baseline");
inline constexpr results::NumberColumn kAppendTotalRatioCiLow{
    "append_total_ratio_ci_low", "1",
    "lower end of the interval of append_total_ratio_p50, so wide that all of the sweep point are right "
    "together "
    "with 95 % (Holm)"};
inline constexpr results::NumberColumn kAppendTotalRatioCiHigh{
    "append_total_ratio_ci_high", "1", "upper end of the interval of append_total_ratio_p50"};
inline constexpr auto kGrowthColumns =
    results::column_list(kAppendTotalUs, kAppendTotalCiLowUs, kAppendTotalCiHighUs, kAppendTotalRatio,
                         kAppendTotalRatioCiLow, kAppendTotalRatioCiHigh);

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
