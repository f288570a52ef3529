// The formats of a model's layers with the least predicted loss that fit into a budget of bytes.
//
// Losses of layers are taken to add up, as their bytes do: a knapsack with one option a layer. It is solved exactly, layer after
// layer, with the states that no other beats in both bytes and loss (Nemhauser and Ullmann 1969). Layers that are alike have few
// different sums of bytes, so few states are left.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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

}  // namespace kv::choose
