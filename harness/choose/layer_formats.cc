#include "harness/choose/layer_formats.h"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace kv::choose {

std::vector<int> cached_layers(const ModelShape& shape) {
  std::vector<int> layers;
  for (const LayerGroup& group : groups_of(default_spec(), shape)) {
    if (!group.linear) layers.insert(layers.end(), group.layers.begin(), group.layers.end());
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

Spec spec_of(const std::string& placement, const LayerFormat& format) {
  const std::string codec = format.k == format.v ? format.k : "split(k=" + format.k + ",v=" + format.v + ")";
  return parse_spec(placement + "/" + codec);
}

LayerSpecs specs_of(const std::string& placement, std::span<const int> layers,
                    std::span<const LayerFormat> formats) {
  if (layers.empty() || layers.size() != formats.size())
    throw std::logic_error("formats of other layers than the model has");
  std::map<std::string, std::string> numbers;  // of the layers, by spec
  std::map<std::string, int> uses;
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string spec = spec_of(placement, formats[i]).print();
    std::string& of_spec = numbers[spec];
    of_spec += (of_spec.empty() ? "" : ",") + std::to_string(layers[i]);
    ++uses[spec];
  }
  const std::string usual = std::max_element(uses.begin(), uses.end(), [](const auto& a, const auto& b) {
                              return a.second < b.second;
                            })->first;
  std::string text = usual;
  for (const auto& [spec, of_spec] : numbers) {
    if (spec != usual) text += " + " + of_spec + ":" + spec;
  }
  return parse_layer_specs(text);
}

int64_t layer_bytes(const Spec& spec, int layer, const ModelShape& shape, std::span<const int64_t> lengths) {
  for (const LayerGroup& group : groups_of(spec, shape)) {
    if (std::find(group.layers.begin(), group.layers.end(), layer) == group.layers.end()) continue;
    CacheShape one = shape;
    one.layers = 1;
    return predicted_bytes(group.spec, one, lengths);
  }
  throw std::logic_error("layer " + std::to_string(layer) + " keeps no rows");
}

}  // namespace kv::choose
