#include "harness/choose/solver.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "harness/choose/layer_formats.h"

namespace kv::choose {
namespace {

struct State {
  int64_t bytes;
  double loss;
  int option;     // of the layer
  size_t before;  // the state of the layers before it
};

int64_t least_bytes(const std::vector<Option>& options) {
  return std::min_element(options.begin(), options.end(),
                          [](const Option& a, const Option& b) { return a.bytes < b.bytes; })
      ->bytes;
}

void check_options(std::span<const std::vector<Option>> layers) {
  for (const std::vector<Option>& options : layers) {
    const auto finite = [](const Option& option) { return std::isfinite(option.loss); };
    if (options.empty() || !std::all_of(options.begin(), options.end(), finite))
      throw std::logic_error("a layer without an option, or with a loss that is not finite");
  }
}

// Leaves the states that no other beats: by ascending bytes, each with less loss than all before it.
std::vector<State> unbeaten(std::vector<State> states) {
  std::sort(states.begin(), states.end(), [](const State& a, const State& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.loss < b.loss;
  });
  double least = std::numeric_limits<double>::infinity();
  std::erase_if(states, [&](const State& state) {
    if (state.loss >= least) return true;
    least = state.loss;
    return false;
  });
  return states;
}

constexpr const char* kPlaced = "contiguous";

double loss_of(const LayerLosses& losses, int layer, char side, const std::string& codec) {
  if (codec == kMixtureCodecs[0]) return 0;
  const auto found = losses.find({layer, side, codec});
  if (found == losses.end())
    throw std::logic_error("no loss of " + codec + " in layer " + std::to_string(layer));
  return std::max(0.0, found->second);
}

}  // namespace

int64_t fewest_bytes(std::span<const std::vector<Option>> layers) {
  int64_t bytes = 0;
  for (const std::vector<Option>& options : layers) bytes += least_bytes(options);
  return bytes;
}

std::optional<Assignment> least_loss(std::span<const std::vector<Option>> layers, int64_t budget) {
  check_options(layers);
  int64_t rest = fewest_bytes(layers);  // that the layers not yet chosen take at least
  std::vector<std::vector<State>> states{{{.bytes = 0, .loss = 0.0, .option = -1, .before = 0}}};
  for (const std::vector<Option>& options : layers) {
    rest -= least_bytes(options);
    std::vector<State> next;
    for (size_t before = 0; before < states.back().size(); ++before) {
      const State& state = states.back()[before];
      for (size_t i = 0; i < options.size(); ++i) {
        const int64_t bytes = state.bytes + options[i].bytes;
        if (bytes + rest > budget) continue;
        next.push_back({bytes, state.loss + options[i].loss, static_cast<int>(i), before});
      }
    }
    if (next.empty()) return std::nullopt;
    states.push_back(unbeaten(std::move(next)));
  }
  const State& best = states.back().back();
  Assignment found{.options = std::vector<int>(layers.size()), .bytes = best.bytes, .loss = best.loss};
  size_t at = states.back().size() - 1;
  for (size_t layer = layers.size(); layer > 0; --layer) {
    const State& state = states[layer][at];
    found.options[layer - 1] = state.option;
    at = state.before;
  }
  return found;
}

std::optional<Assignment> least_loss(const LayerCosts& costs, int64_t budget, int most_formats) {
  if (most_formats >= costs.formats) return least_loss(costs.layers, budget);
  std::optional<Assignment> best;
  std::vector<bool> chosen(static_cast<size_t>(costs.formats), false);
  std::fill_n(chosen.begin(), most_formats, true);
  do {
    std::vector<int> kept;  // options of chosen formats alone
    for (int k = 0; k < costs.formats; ++k) {
      for (int v = 0; v < costs.formats; ++v) {
        if (chosen[static_cast<size_t>(k)] && chosen[static_cast<size_t>(v)])
          kept.push_back(k * costs.formats + v);
      }
    }
    std::vector<std::vector<Option>> layers;
    for (const std::vector<Option>& options : costs.layers) {
      std::vector<Option>& own = layers.emplace_back();
      for (const int option : kept) own.push_back(options[static_cast<size_t>(option)]);
    }
    std::optional<Assignment> found = least_loss(layers, budget);
    if (!found ||
        (best && (best->loss < found->loss || (best->loss == found->loss && best->bytes <= found->bytes))))
      continue;
    for (int& option : found->options) option = kept[static_cast<size_t>(option)];
    best = std::move(found);
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
  return best;
}

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
