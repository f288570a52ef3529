// Specs of formats by layer, and that their bytes add up.
#include "harness/choose/layer_formats.h"

#include <gtest/gtest.h>

#include "tests/message_of.h"

namespace kv::choose {
namespace {

ModelShape shape_of_layers(std::vector<ModelLayer> kinds, int64_t tokens, int sequences) {
  const int layers = static_cast<int>(kinds.size());
  return {{.layers = layers,
           .q_heads = 4,
           .kv_heads = 2,
           .head_dim = 64,
           .max_tokens = tokens,
           .max_sequences = sequences},
          std::move(kinds)};
}

TEST(LayerFormats, TheMostFrequentFormatIsTheDefault) {
  const std::vector<int> layers{0, 2, 3, 5};
  const std::vector<LayerFormat> formats{
      {"q8_0", "q8_0"}, {"q4_0", "q4_0"}, {"q8_0", "f16"}, {"q4_0", "q4_0"}};
  const LayerSpecs specs = specs_of("contiguous", layers, formats);
  EXPECT_EQ(specs.print(), "contiguous/q4_0 + 0:contiguous/q8_0 + 3:contiguous/split(k=q8_0)");
  EXPECT_EQ(parse_layer_specs(specs.print()), specs);
}

TEST(LayerFormats, ACodecThatNoSideHasAloneIsRefused) {
  const std::string refused = message_of([] { spec_of("contiguous", {"q9_0", "q8_0"}); });
  EXPECT_TRUE(test::contains(refused, "q9_0")) << refused;
}

TEST(LayerFormats, LayersThatShareOrHoldAStateKeepNoRows) {
  std::vector<ModelLayer> kinds(4);
  kinds[1].kind = "linear";
  kinds[3].shares = 0;
  EXPECT_EQ(cached_layers(shape_of_layers(kinds, 64, 1)), (std::vector<int>{0, 2}));
}

// The solver adds bytes of layers: they are those of the whole cache, windows, groups and residuals included.
TEST(LayerFormats, BytesOfLayersAddUp) {
  std::vector<ModelLayer> kinds(5);
  kinds[1] = {.kind = "sliding", .window = 96};
  kinds[3] = {.kind = "sliding", .window = 96};
  const std::vector<LayerFormat> formats{{"q8_0", "q4_0"},
                                         {"q8_0", "q8_0"},
                                         {"kivi(bits=2)", "f16"},
                                         {"f16", "q5_0"},
                                         {"token(bits=4,residual=48)", "q8_0"}};
  for (const char* placement : {"contiguous", "paged(block=32)", "doubling"}) {
    const ModelShape shape = shape_of_layers(kinds, 333, 2);
    const std::vector<int> layers = cached_layers(shape);
    const std::vector<int64_t> lengths{333, 333};
    int64_t sum = 0;
    for (size_t i = 0; i < layers.size(); ++i)
      sum += layer_bytes(spec_of(placement, formats[i]), layers[i], shape, lengths);
    EXPECT_EQ(sum, predicted_bytes(specs_of(placement, layers, formats), shape, lengths)) << placement;
  }
}

}  // namespace
}  // namespace kv::choose
