// The spec of each layer of a model.
#pragma once

#include <span>
#include <vector>

#include "variants/model_cache/layer_specs.h"
#include "variants/model_cache/model_layer.h"

namespace kv {

struct ResolvedLayer {
  Spec spec;         // the cache that the layer reads; no meaning for a linear layer
  bool cut = false;  // to the layer's window, which the specs leave to the model
};

inline constexpr std::string_view kLinear = "linear";  // the kind whose layers keep a state of constant size
bool is_linear(const ModelLayer& layer);
// Those of kind "full", "sliding" and "chunked"; what others keep does not grow.
bool keeps_rows(const ModelLayer& layer);

// The spec of every layer of the model, with its own window where a spec has window=model. A layer with a window
// never keeps more than that: where a spec would keep more of `max_tokens`, its retention becomes a ring of the
// window. A layer that shares has the spec of the layer whose cache it reads.
//
// Throws std::invalid_argument, with a caret under the exception, where it names a layer or a kind that the model
// lacks, a linear layer or one that shares; where window=model is for a layer without one; and where layers
// would differ in who rotates keys (positions=cache), which a model can only do for all. Likewise for a window or a
// `shares` that cannot be.
std::vector<ResolvedLayer> resolve(const LayerSpecs& specs, std::span<const ModelLayer> layers,
                                   int64_t max_tokens);

// "full, sliding": the kinds of the layers, each once, as they come.
std::vector<std::string> kinds_of(std::span<const ModelLayer> layers);

}  // namespace kv
