// The caches that a sensitivity run reads with: formats in one layer's K or V alone, in all layers, and in random mixtures.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/choose/layer_formats.h"
#include "harness/results/column.h"
#include "harness/results/row.h"

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

struct SensitivityArm {
  LayerSpecs spec;
  std::string format;                             // "mixture" where several are drawn
  int layer = -1;                                 // -1: all layers
  char side = 0;                                  // 'K' or 'V'; 0: both
  std::vector<choose::LayerFormat> formats = {};  // of all cached layers; empty: those of one layer's side
};

// A variant's codec as text. Throws std::invalid_argument, with `where` before, for one that has exceptions by layer, another
// retention or selection than the defaults, or a codec for K and another for V.
std::string sensitive_format(const LayerSpecs& variant, const std::string& where);

// For each codec but f32 an arm a layer and side, then one with it in all layers; then `mixtures` ones whose layers and sides draw
// their codecs from `seed`, fewer where so many different ones do not exist.
std::vector<SensitivityArm> sensitivity_arms(const std::string& placement,
                                             std::span<const std::string> codecs, std::span<const int> layers,
                                             int64_t mixtures, uint64_t seed);

// Sets the columns of each arm. `rows`: one an arm, in order; predictions stay empty where a part has no loss.
void set_sensitivities(std::span<const SensitivityArm> arms, std::span<const int> layers,
                       std::span<results::Row> rows);

}  // namespace kv::experiments
