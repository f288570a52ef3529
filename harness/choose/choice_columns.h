// The columns of the table of choices.
#pragma once

#include "harness/measure/exposure.h"
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
inline constexpr results::NumberColumn kUserRate{
    "user_tokens_per_s", "tokens/s",
    "tokens a second of each user at the context while all decode, for caches that keep the limit"};
inline constexpr results::NumberColumn kUserRateLow{"user_tokens_per_s_ci_low", "tokens/s",
                                                    "lower end of the 95 % interval of user_tokens_per_s"};
inline constexpr results::NumberColumn kUserRateHigh{"user_tokens_per_s_ci_high", "tokens/s",
                                                     "upper end of the 95 % interval of user_tokens_per_s"};
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
inline constexpr auto kChoiceColumns = results::column_list(
    results::kVariant, kBytes, kWindow, kCalibrated, kCalibratedLow, kCalibratedHigh, kHeldOut, kHeldOutLow,
    kHeldOutHigh, kHeldOutBound, kUserRate, kUserRateLow, kUserRateHigh, measure::kEncodedShare,
    measure::kDroppedShare, measure::kStatedContext, measure::kContextEncodedShare,
    measure::kContextDroppedShare, kAnswer);
inline const results::Table kChoiceTable{"the table of choices",
                                         {kChoiceColumns.begin(), kChoiceColumns.end()}};

}  // namespace kv::choose
