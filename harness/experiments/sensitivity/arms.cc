#include "harness/experiments/sensitivity/arms.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

#include "harness/experiments/sensitivity.h"
#include "harness/math/random.h"
#include "harness/measure/prediction_columns.h"

namespace kv::experiments {
namespace {

constexpr const char* kRaw = "f32";

using Formats = std::vector<choose::LayerFormat>;

// Codecs of every layer and side, drawn each for itself.
Formats drawn_formats(std::span<const std::string> codecs, size_t layers, uint64_t key) {
  Formats formats;
  for (size_t i = 0; i < layers; ++i) {
    const auto drawn = [&](uint64_t at) { return codecs[math::random::below(key, at, codecs.size())]; };
    formats.push_back({drawn(2 * i), drawn(2 * i + 1)});
  }
  return formats;
}

using Part = std::tuple<int, char, std::string>;  // layer, side, codec

// The sum of what the parts that are not raw did alone, or nothing where one has no value.
results::Number sum_of(const std::map<Part, results::Number>& alone, std::span<const int> layers,
                       const Formats& formats) {
  double sum = 0.0;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const auto& [side, codec] : {std::pair{'K', formats[i].k}, {'V', formats[i].v}}) {
      if (codec == kRaw) continue;
      const auto found = alone.find({layers[i], side, codec});
      if (found == alone.end() || !found->second) return {};
      sum += *found->second;
    }
  }
  return sum;
}

}  // namespace

std::string sensitive_format(const LayerSpecs& variant, const std::string& where) {
  const StageTexts stages = variant.fallback.stages(), usual = default_spec().stages();
  if (variant.is_one() && stages.retention == usual.retention && stages.selection == usual.selection &&
      variant.fallback.codec.name != "split")
    return stages.codec;
  throw std::invalid_argument(
      where + "variants has '" + variant.print() +
      "'; it takes one codec for K and V of all layers and all tokens, as contiguous/q4_0");
}

std::vector<SensitivityArm> sensitivity_arms(const std::string& placement,
                                             std::span<const std::string> codecs, std::span<const int> layers,
                                             int64_t mixtures, uint64_t seed) {
  std::vector<SensitivityArm> arms;
  std::set<std::string> seen;
  const auto add = [&](Formats formats, std::string format, int layer, char side) {
    LayerSpecs spec = choose::specs_of(placement, layers, formats);
    if (!seen.insert(spec.print()).second) return false;
    if (side) formats.clear();
    arms.push_back({std::move(spec), std::move(format), layer, side, std::move(formats)});
    return true;
  };
  for (const std::string& codec : codecs) {
    if (codec != kRaw) {
      for (size_t i = 0; i < layers.size(); ++i) {
        Formats k(layers.size(), {kRaw, kRaw}), v = k;
        k[i].k = v[i].v = codec;
        add(std::move(k), codec, layers[i], 'K');
        add(std::move(v), codec, layers[i], 'V');
      }
    }
    add(Formats(layers.size(), {codec, codec}), codec, -1, 0);
  }
  constexpr uint64_t kMixtureStream = 0x6d69'7874757265;  // "mixture"
  constexpr int64_t kTriesEach = 20;
  std::vector<std::string> drawn_from;
  std::ranges::copy_if(codecs, std::back_inserter(drawn_from),
                       [](const std::string& c) { return c != kRaw; });
  if (drawn_from.empty()) return arms;
  int64_t added = 0;
  for (int64_t tries = 0; added < mixtures && tries < kTriesEach * mixtures; ++tries) {
    const uint64_t key = math::random::key({seed, kMixtureStream, static_cast<uint64_t>(tries)});
    if (add(drawn_formats(drawn_from, layers.size(), key), "mixture", -1, 0)) ++added;
  }
  return arms;
}

void set_sensitivities(std::span<const SensitivityArm> arms, std::span<const int> layers,
                       std::span<results::Row> rows) {
  std::map<Part, results::Number> kl, loss;
  for (size_t i = 0; i < arms.size(); ++i) {
    const SensitivityArm& arm = arms[i];
    results::Row& row = rows[i];
    row[kSensitiveFormat] = arm.format;
    row[kSensitiveSide] = arm.side ? std::string(1, arm.side) : "KV";
    if (!arm.side) continue;
    row[kSensitiveLayer] = arm.layer;
    kl[{arm.layer, arm.side, arm.format}] = row[measure::kKlMean];
    loss[{arm.layer, arm.side, arm.format}] = row[measure::kLossChange];
  }
  for (size_t i = 0; i < arms.size(); ++i) {
    if (arms[i].side) continue;
    rows[i][kPredictedKl] = sum_of(kl, layers, arms[i].formats);
    rows[i][kPredictedLossChange] = sum_of(loss, layers, arms[i].formats);
  }
}

choose::LayerLosses layer_losses(std::span<const results::Row> cells) {
  choose::LayerLosses losses;
  for (const results::Row& row : cells) {
    if (row[kSensitiveLayer] && row[measure::kKlMean])
      losses[{static_cast<int>(*row[kSensitiveLayer]), row[kSensitiveSide].front(), row[kSensitiveFormat]}] =
          *row[measure::kKlMean];
  }
  return losses;
}

}  // namespace kv::experiments
