// The columns of the table of choices.
#pragma once

#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::choose {

inline constexpr results::IntegerColumn kBytes{
    "bytes", "bytes", "payload, metadata and slack of all users' caches at the context"};
inline constexpr results::NumberColumn kCalibrated{
    "calibrated", "nats", "loss above the full f32 cache's on the first windows of the text"};
inline constexpr results::NumberColumn kCalibratedLow{"calibrated_ci_low", "nats",
                                                      "lower end of the 95 % interval of calibrated"};
inline constexpr results::NumberColumn kCalibratedHigh{"calibrated_ci_high", "nats",
                                                       "upper end of the 95 % interval of calibrated"};
inline constexpr results::NumberColumn kHeldOut{
    "held_out", "nats", "the same on the windows behind these, for caches that were confirmed"};
inline constexpr results::NumberColumn kHeldOutLow{"held_out_ci_low", "nats",
                                                   "lower end of the 95 % interval of held_out"};
inline constexpr results::NumberColumn kHeldOutHigh{"held_out_ci_high", "nats",
                                                    "upper end of the 95 % interval of held_out"};
inline constexpr results::NumberColumn kHeldOutBound{
    "held_out_bound", "nats", "bound that the true losses of all confirmed caches keep together with 95 %"};
inline constexpr auto kAnswer =
    results::TextColumn{
        "answer", "",
        "chosen: keeps the limit, and nothing is surely better; worse: keeps it, another is surely "
        "better; over: its bound is above the limit; too_large: for the memory; left: not confirmed"}
        .one_of("best keeps over too_large left");
inline constexpr auto kChoiceColumns =
    results::column_list(results::kVariant, kBytes, kCalibrated, kCalibratedLow, kCalibratedHigh, kHeldOut,
                         kHeldOutLow, kHeldOutHigh, kHeldOutBound, kAnswer);
inline const results::Table kChoiceTable{"the table of choices",
                                         {kChoiceColumns.begin(), kChoiceColumns.end()}};

}  // namespace kv::choose
