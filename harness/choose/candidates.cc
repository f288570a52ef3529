#include "harness/choose/candidates.h"

#include "harness/choose/layer_formats.h"

namespace kv::choose {
namespace {

// Codecs of all layers; K's and V's where they differ.
constexpr const char* kEverywhere[] = {
    "f16",
    "q8_0",
    "split(k=q8_0,v=q5_0)",
    "q5_1",
    "q5_0",
    "split(k=q8_0,v=q4_0)",
    "q4_1",
    "q4_0(rotate=hadamard)",
    "iq4_nl",
    "kivi(bits=4)",
    "token(bits=4,rotate=hadamard)",
    "kivi(bits=2)",
};
// Caches that engines have beside those.
constexpr const char* kOfEngines[] = {
    "contiguous/bf16", "contiguous/q8_0(rotate=hadamard)", "contiguous/q4_0",    "paged/f16", "paged/bf16",
    "paged/fp8",       "paged/token(mode=symmetric)",      "concat/kivi(bits=4)"};
// Codecs of the layers between the first two and the last two, which keep f16: the recipe of llama.cpp #21385.
constexpr const char* kBetween[] = {"q4_0(rotate=hadamard)", "kivi(bits=2)"};
constexpr size_t kOuterLayers = 2;

}  // namespace

std::vector<std::string> candidate_specs(const ModelShape& shape, const peers::Engine* engine) {
  std::vector<std::string> specs;
  const auto add = [&](const std::string& text) {
    const LayerSpecs parsed = parse_layer_specs(text);
    if (oracle_of(parsed).empty() && unsupported_reason(parsed, shape).empty() &&
        (!engine || !command_of(*engine, parsed).empty()))
      specs.push_back(text);
  };
  for (const char* codec : kEverywhere) add(std::string("contiguous/") + codec);
  for (const char* spec : kOfEngines) {
    if (engine) add(spec);
  }
  const std::vector<int> layers = cached_layers(shape);
  if (layers.size() > 2 * kOuterLayers) {
    std::string outer;
    for (size_t i = 0; i < kOuterLayers; ++i) {
      for (const int layer : {layers[i], layers[layers.size() - kOuterLayers + i]})
        outer += (outer.empty() ? "" : ",") + std::to_string(layer);
    }
    for (const char* codec : kBetween)
      add(std::string("contiguous/") + codec + " + " + outer + ":contiguous/f16");
  }
  return specs;
}

}  // namespace kv::choose
