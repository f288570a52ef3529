// The columns that sensitivity alone writes.
#pragma once

#include "harness/results/column.h"

namespace kv::experiments {

inline constexpr results::IntegerColumn kSensitiveLayer{
    "sensitive_layer", "", "sensitivity: the one layer that is not raw, from 0; empty: several are not"};
inline constexpr auto kSensitiveSide =
    results::TextColumn{"sensitive_side", "", "sensitivity: the side of it that is not raw; KV: both"}.one_of(
        "K V KV");
inline constexpr results::TextColumn kSensitiveFormat{
    "sensitive_format", "", "sensitivity: codec of what is not raw; mixture: drawn for each layer and side"};
inline constexpr results::NumberColumn kPredictedKl{
    "predicted_kl", "nats",
    "sensitivity: sum of kl_mean over the layers and sides that are not raw, each measured alone"};
inline constexpr results::NumberColumn kPredictedLossChange{"predicted_loss_change", "nats",
                                                            "sensitivity: the same sum of loss_change"};
inline constexpr auto kSensitivityColumns = results::column_list(
    kSensitiveLayer, kSensitiveSide, kSensitiveFormat, kPredictedKl, kPredictedLossChange);

}  // namespace kv::experiments
