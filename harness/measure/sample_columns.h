// samples.csv: every timed step or operation. Side tables name each row's cell.
#pragma once

#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::measure {

inline constexpr results::IntegerColumn kRepetition{"repetition", "", "number of the repetition, from 0"};
inline constexpr results::IntegerColumn kSample{"sample", "",
                                                "number of the sample in its repetition, from 0"};
inline constexpr auto kKind =
    results::TextColumn{"kind", "",
                        "step, prefill, cold (attention alone over rotating caches), draft (a step that "
                        "verifies drafts), or a checkpoint run's operation"}
        .one_of("step prefill cold draft save load freeze unfreeze fork compact");
inline constexpr results::NumberColumn kAppendUs{"append_us", "us", "storing one token a sequence"};
inline constexpr results::NumberColumn kViewUs{"view_us", "us", "making the kept rows readable"};
inline constexpr results::NumberColumn kAttendUs{
    "attend_us", "us", "attention over the kept rows; empty if the run measures the cache update alone"};
inline constexpr results::NumberColumn kStepUs{
    "step_us", "us", "append + view + attend + projections + state + rest, or the operation"};
inline constexpr results::NumberColumn kProjectionsUs{"projections_us", "us", "products with weights"};
inline constexpr results::NumberColumn kStateUs{"state_us", "us", "linear layers' recurrence"};
inline constexpr results::NumberColumn kRestUs{"rest_us", "us", "the rest of a whole model's step"};
inline constexpr results::NumberColumn kGpuUs{"gpu_us", "us", "attention by the GPU's own clock"};

inline const results::Table kSamples{
    "samples.csv",
    {&results::kCell, &results::kVariant, &results::kSeqLen, &results::kBatch, &kRepetition, &kSample, &kKind,
     &kAppendUs, &kViewUs, &kAttendUs, &kStepUs, &kProjectionsUs, &kStateUs, &kRestUs, &kGpuUs,
     &results::kHost}};

}  // namespace kv::measure
