// The formats of a model's layers with the least predicted loss that fit into a budget of bytes.
//
// Losses of layers are taken to add up, as their bytes do: a knapsack with one option a layer. It is solved exactly, layer after
// layer, with the states that no other beats in both bytes and loss (Nemhauser and Ullmann 1969). Layers that are alike have few
// different sums of bytes, so few states are left.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "variants/model_cache/layer_groups.h"

namespace kv::choose {

struct Option {
  int64_t bytes = 0;
  double loss = 0.0;
};

struct Assignment {
  std::vector<int> options;  // of each layer
  int64_t bytes = 0;
  double loss = 0.0;  // summed in the order of the layers
};

// The assignment of one option a layer with the least loss within `budget` bytes, of these the one with the fewest bytes; nothing
// where not even the smallest fits. A layer without options, or a loss that is not finite, is a bug (std::logic_error).
std::optional<Assignment> least_loss(std::span<const std::vector<Option>> layers, int64_t budget);

// What each layer's formats cost: the option of formats k and v is number k * formats + v.
struct LayerCosts {
  int formats = 0;
  std::vector<std::vector<Option>> layers;  // [layers][formats * formats]
};
// The same with at most `most_formats` different formats in all layers and sides together: tries every set of so many.
std::optional<Assignment> least_loss(const LayerCosts& costs, int64_t budget, int most_formats);

// The fewest bytes of any assignment.
int64_t fewest_bytes(std::span<const std::vector<Option>> layers);

// KL divergence, nats, of a codec in one layer's K or V alone: by layer, side ('K' or 'V') and codec.
using LayerLosses = std::map<std::tuple<int, char, std::string>, double>;

// The codecs that a mixture is made of; the first is taken to lose nothing.
inline constexpr const char* kMixtureCodecs[] = {"f16", "q8_0", "q4_0(rotate=hadamard)",
                                                 "kivi(bits=2,residual=0)"};

// The spec whose predicted loss, the sum of `losses`, is least among those of at most `memory_bytes` for sequences of `lengths` tokens.
// Empty where not even the smallest fits. A loss that is missing is a bug (std::logic_error).
std::optional<std::string> mixture_spec(const LayerLosses& losses, const ModelShape& shape,
                                        std::span<const int64_t> lengths, int64_t memory_bytes);

}  // namespace kv::choose
