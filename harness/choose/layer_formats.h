// Formats that differ from layer to layer and from K to V, and the specs that say so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "variants/model_cache/layer_groups.h"

namespace kv::choose {

// The codecs of a layer's K and V, as a spec writes them: "q8_0", "kivi(bits=2)". "f32" is raw.
struct LayerFormat {
  std::string k, v;
  friend bool operator==(const LayerFormat&, const LayerFormat&) = default;
};

// The layers that keep K and V of their own, ascending: no linear ones, and none that shares another's cache.
std::vector<int> cached_layers(const ModelShape& shape);

// "contiguous/q8_0" where K and V are alike, else "contiguous/split(k=q8_0,v=q4_0)". Throws std::invalid_argument as
// parse_spec does, for a codec that no side can have alone, too.
Spec spec_of(const std::string& placement, const LayerFormat& format);

// `formats[i]` in layer `layers[i]`; the most frequent one is the default. Throws as spec_of(). As many formats as layers, at
// least one, or std::logic_error.
LayerSpecs specs_of(const std::string& placement, std::span<const int> layers,
                    std::span<const LayerFormat> formats);

// Bytes of one layer's cache with this spec, by the closed form; layers that are caches of their own add up to the model's.
int64_t layer_bytes(const Spec& spec, int layer, const ModelShape& shape, std::span<const int64_t> lengths);

}  // namespace kv::choose
