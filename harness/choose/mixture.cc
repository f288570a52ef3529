#include "harness/choose/mixture.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "harness/choose/layer_formats.h"
#include "harness/choose/solver.h"

namespace kv::choose {
namespace {

constexpr const char* kPlaced = "contiguous";

double loss_of(const LayerLosses& losses, int layer, char side, const std::string& codec) {
  if (codec == kMixtureCodecs[0]) return 0;
  const auto found = losses.find({layer, side, codec});
  if (found == losses.end())
    throw std::logic_error("no loss of " + codec + " in layer " + std::to_string(layer));
  return std::max(0.0, found->second);
}

}  // namespace

std::optional<std::string> mixture_spec(const LayerLosses& losses, const ModelShape& shape,
                                        std::span<const int64_t> lengths, int64_t memory_bytes) {
  std::vector<LayerFormat> formats;
  for (const char* k : kMixtureCodecs) {
    for (const char* v : kMixtureCodecs) formats.push_back({k, v});
  }
  const std::vector<int> layers = cached_layers(shape);
  std::vector<std::vector<Option>> options;
  for (const int layer : layers) {
    std::vector<Option>& own = options.emplace_back();
    for (const LayerFormat& format : formats) {
      own.push_back({layer_bytes(spec_of(kPlaced, format), layer, shape, lengths),
                     loss_of(losses, layer, 'K', format.k) + loss_of(losses, layer, 'V', format.v)});
    }
  }
  const std::optional<Assignment> best = least_loss(options, memory_bytes);
  if (!best) return std::nullopt;
  std::vector<LayerFormat> chosen;
  for (const int option : best->options) chosen.push_back(formats[static_cast<size_t>(option)]);
  return specs_of(kPlaced, layers, chosen).print();
}

}  // namespace kv::choose
