// The columns of the table of choices.
#pragma once

#include "harness/measure/exposure.h"
#include "harness/results/cell_columns.h"
#include "harness/results/estimate.h"
#include "harness/results/table.h"

namespace kv::choose {

inline constexpr results::IntegerColumn kBytes{
    "bytes", "bytes", "payload, metadata and slack of all users' caches at the context"};
inline constexpr auto kCalibrated = results::estimate<"calibrated">(
    "nats", "loss above the full f32 cache's on the first windows of the text");
inline constexpr auto kHeldOut = results::estimate<"held_out">(
    "nats", "the same on the windows behind these, for caches that were confirmed");
inline constexpr results::NumberColumn kHeldOutBound{
    "held_out_bound", "nats", "bound that the true losses of all confirmed caches keep together with 95 %"};
inline constexpr auto kUserRate = results::estimate<"user_tokens_per_s">(
    "tokens/s",
    "tokens a second of each user at the context while all decode, for caches that keep the limit");
inline constexpr results::IntegerColumn kWindow{
    "window", "tokens", "tokens of a window of the text: the length that losses and bounds are of"};
inline constexpr auto kAnswer =
    results::TextColumn{
        "answer", "",
        "best: keeps the limits, and nothing is surely better; keeps: keeps them, another is surely better; "
        "slow: for --tokens-per-second; over: its bound is above the limit; too_large: for the memory; "
        "left: not confirmed; untested: not measured, as its windows expose less than 0.9 of what the "
        "context does"}
        .one_of("best keeps slow over too_large left untested");
inline constexpr auto kChoiceColumns =
    results::column_list(results::kVariant, kBytes, kWindow, kCalibrated, kHeldOut, kHeldOutBound, kUserRate,
                         measure::kEncodedShare, measure::kDroppedShare, measure::kStatedContext,
                         measure::kContextEncodedShare, measure::kContextDroppedShare, kAnswer);
inline const results::Table kChoiceTable{"the table of choices",
                                         {kChoiceColumns.begin(), kChoiceColumns.end()}};

}  // namespace kv::choose
