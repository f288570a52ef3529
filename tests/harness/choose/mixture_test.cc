#include "harness/choose/solver.h"

#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <vector>

#include "harness/choose/candidates.h"
#include "harness/math/random.h"

namespace kv {
namespace {

constexpr int kLayers = 3;
constexpr size_t kCodecs = std::size(choose::kMixtureCodecs);

ModelShape small_shape() {
  ModelShape shape;
  shape.layers = kLayers;
  shape.q_heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 32;
  shape.max_tokens = 512;
  return shape;
}

const Spec& of_layer(const LayerSpecs& specs, int layer) {
  for (const LayerException& exception : specs.exceptions) {
    if (exception.names(layer)) return exception.spec;
  }
  return specs.fallback;
}

double drawn(uint64_t at) { return static_cast<double>(math::random::below(7, at, 1000)) / 1000; }

// Every mixture of 3 layers, by its spec's closed form and the sum of its parts.
double least_by_trial(const choose::LayerLosses& losses, const ModelShape& shape,
                      const std::vector<int64_t>& lengths, int64_t memory_bytes) {
  double least = std::numeric_limits<double>::infinity();
  constexpr size_t kFormats = kCodecs * kCodecs;
  for (size_t all = 0; all < kFormats * kFormats * kFormats; ++all) {
    std::string text = "contiguous";
    double loss = 0;
    size_t rest = all;
    for (int layer = 0; layer < kLayers; ++layer, rest /= kFormats) {
      const std::string k = choose::kMixtureCodecs[rest % kFormats / kCodecs],
                        v = choose::kMixtureCodecs[rest % kCodecs];
      const std::string codec = k == v ? k : "split(k=" + k + ",v=" + v + ")";
      text += " + " + std::to_string(layer) + ":contiguous/" + codec;
      for (const auto& [side, name] : {std::pair{'K', k}, {'V', v}}) {
        if (name != "f16") loss += losses.at({layer, side, name});
      }
    }
    if (loss < least && predicted_bytes(parse_layer_specs(text), shape, lengths) <= memory_bytes)
      least = loss;
  }
  return least;
}

TEST(Mixture, HasTheLeastLossOfAllThatFit) {
  const ModelShape shape = small_shape();
  const std::vector<int64_t> lengths{512};
  choose::LayerLosses losses;
  uint64_t at = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (size_t codec = 1; codec < kCodecs; ++codec) {
      losses[{layer, 'K', choose::kMixtureCodecs[codec]}] = drawn(at++);
      losses[{layer, 'V', choose::kMixtureCodecs[codec]}] = drawn(at++);
    }
  }
  const int64_t f16 = predicted_bytes(parse_layer_specs("contiguous/f16"), shape, lengths);
  for (const int64_t memory : {f16, f16 * 3 / 4, f16 / 2, f16 * 3 / 10}) {
    const auto spec = choose::mixture_spec(losses, shape, lengths, memory);
    ASSERT_TRUE(spec) << memory;
    EXPECT_LE(predicted_bytes(parse_layer_specs(*spec), shape, lengths), memory) << *spec;
    const double least = least_by_trial(losses, shape, lengths, memory);
    double loss = 0;
    for (int layer = 0; layer < kLayers; ++layer) {
      const Stage codec = of_layer(parse_layer_specs(*spec), layer).codec;
      const bool split = codec.name == "split";
      const std::string whole = of_layer(parse_layer_specs(*spec), layer).stages().codec;
      const std::string k = split ? codec.text("k") : whole, v = split ? codec.text("v") : whole;
      if (k != "f16") loss += losses.at({layer, 'K', k});
      if (v != "f16") loss += losses.at({layer, 'V', v});
    }
    EXPECT_NEAR(loss, least, 1e-12) << *spec;
  }
  EXPECT_EQ(choose::mixture_spec(losses, shape, lengths, f16), "contiguous/f16");
  EXPECT_FALSE(choose::mixture_spec(losses, shape, lengths, 100));
  losses.erase({1, 'K', "q8_0"});
  EXPECT_THROW(choose::mixture_spec(losses, shape, lengths, f16), std::logic_error);
}

TEST(Candidates, KeepEveryTokenAndFitTheModel) {
  const ModelShape three = small_shape();
  ModelShape six = three;
  six.layers = 6;
  const std::vector<std::string> few = choose::candidate_specs(three), more = choose::candidate_specs(six);
  EXPECT_EQ(few.front(), "contiguous/f16");
  EXPECT_EQ(more.size(), few.size() + 2);  // first and last two layers raw: three have none between
  EXPECT_EQ(more.back(), "contiguous/kivi(bits=2) + 0,4,1,5:contiguous/f16");
  for (const std::string& text : more) {
    EXPECT_EQ(unsupported_reason(parse_layer_specs(text), six), "") << text;
    EXPECT_EQ(of_layer(parse_layer_specs(text), 2).stages().retention, "full") << text;
  }
}

}  // namespace
}  // namespace kv
