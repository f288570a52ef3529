// growth.csv: every step of a growth run.
#pragma once

#include "harness/measure/sample_columns.h"

namespace kv::experiments {

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
