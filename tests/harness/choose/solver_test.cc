// The solver against every assignment of small random models.
#include "harness/choose/solver.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "harness/math/random.h"

namespace kv::choose {
namespace {

using Layers = std::vector<std::vector<Option>>;

// Calls `visit` with every assignment of one option a layer.
template <class Visit>
void each_assignment(const Layers& layers, const Visit& visit) {
  Assignment at{.options = std::vector<int>(layers.size()), .bytes = 0, .loss = 0.0};
  while (true) {
    at.bytes = 0;
    at.loss = 0.0;
    for (size_t i = 0; i < layers.size(); ++i) {
      const Option& option = layers[i][static_cast<size_t>(at.options[i])];
      at.bytes += option.bytes;
      at.loss += option.loss;
    }
    visit(at);
    size_t layer = 0;
    while (layer < layers.size() && ++at.options[layer] == std::ssize(layers[layer])) at.options[layer++] = 0;
    if (layer == layers.size()) return;
  }
}

int different_formats(const Assignment& selection, int formats) {
  std::set<int> used;
  for (const int option : selection.options) used.insert({option / formats, option % formats});
  return static_cast<int>(used.size());
}

// The least loss within the budget, then the fewest bytes; infinite loss where nothing fits.
Assignment by_brute_force(const LayerCosts& costs, int64_t budget, int most_formats) {
  Assignment best{.options = {}, .bytes = 0, .loss = std::numeric_limits<double>::infinity()};
  each_assignment(costs.layers, [&](const Assignment& at) {
    if (at.bytes > budget || different_formats(at, costs.formats) > most_formats) return;
    if (at.loss < best.loss || (at.loss == best.loss && at.bytes < best.bytes)) best = at;
  });
  return best;
}

// Few different bytes, as layers that are alike have; losses may be negative, as noise makes them.
LayerCosts random_costs(uint64_t seed, int layers, int formats) {
  const uint64_t key = math::random::key({seed});
  LayerCosts costs{.formats = formats, .layers = {}};
  uint64_t i = 0;
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<Option>& options = costs.layers.emplace_back();
    for (int option = 0; option < formats * formats; ++option) {
      const auto bytes = static_cast<int64_t>(10 + math::random::below(key, i++, 9));
      options.push_back({bytes, math::random::uniform(key, i++) - 0.1});
    }
  }
  return costs;
}

TEST(Solver, FindsTheOptimumOfEveryAssignment) {
  int found = 0, refused = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int formats = 1 + static_cast<int>(seed % 3), layers = 1 + static_cast<int>(seed % 4);
    const LayerCosts costs = random_costs(seed, layers, formats);
    for (int64_t budget = 8 * layers; budget <= 20 * layers; budget += 2) {
      for (int most = 1; most <= formats; ++most) {
        const Assignment want = by_brute_force(costs, budget, most);
        const std::optional<Assignment> got = least_loss(costs, budget, most);
        ASSERT_EQ(got.has_value(), std::isfinite(want.loss));
        ++(got ? found : refused);
        if (!got) continue;
        ASSERT_EQ(got->loss, want.loss);  // the same sums, bit for bit
        ASSERT_EQ(got->bytes, want.bytes);
        EXPECT_LE(different_formats(*got, formats), most);
        double loss = 0.0;
        for (size_t i = 0; i < costs.layers.size(); ++i)
          loss += costs.layers[i][static_cast<size_t>(got->options[i])].loss;
        EXPECT_EQ(loss, got->loss);
      }
    }
  }
  EXPECT_GT(found, 500);
  EXPECT_GT(refused, 50);
}

TEST(Solver, FewestBytesIsTheSmallestBudgetThatHasAnAssignment) {
  const LayerCosts costs = random_costs(7, 5, 2);
  const int64_t fewest = fewest_bytes(costs.layers);
  EXPECT_EQ(least_loss(costs.layers, fewest)->bytes, fewest);
  EXPECT_FALSE(least_loss(costs.layers, fewest - 1));
}

// As many layers as large models have, in the bytes of real formats.
TEST(Solver, HasFewStatesForManyLayersThatAreAlike) {
  const int64_t bytes[] = {34, 22, 18, 10};
  LayerCosts costs{.formats = 4, .layers = {}};
  for (uint64_t layer = 0; layer < 80; ++layer) {
    std::vector<Option>& options = costs.layers.emplace_back();
    for (uint64_t option = 0; option < 16; ++option)
      options.push_back({4096 * (bytes[option / 4] + bytes[option % 4]),
                         math::random::uniform(math::random::key({layer}), option)});
  }
  const int64_t budget = 80 * 4096 * 36;
  const std::optional<Assignment> all = least_loss(costs, budget, 4), two = least_loss(costs, budget, 2);
  ASSERT_TRUE(all && two);
  EXPECT_LE(all->bytes, budget);
  EXPECT_LT(all->loss, two->loss);
  EXPECT_LE(different_formats(*two, 4), 2);
}

TEST(Solver, RefusesWhatHasNoSense) {
  const std::vector<Option> good{{1, 0.5}};
  EXPECT_THROW(least_loss(Layers{good, {}}, 10), std::logic_error);
  EXPECT_THROW(least_loss(Layers{{{1, std::numeric_limits<double>::quiet_NaN()}}}, 10), std::logic_error);
}

}  // namespace
}  // namespace kv::choose
