// A cache's name in charts, tables and terminals.
#pragma once

#include <string>

#include "variants/model_cache/layer_specs.h"

namespace kv {

// Says in words what is kept: "contiguous f32", "paged q8_0", "kivi 2-bit residual 128", "f16 h2o 64+64". Contiguous rows go without
// saying where something else is said than a float type. Different specs have different labels; the spec stays the key.
std::string label_of(const LayerSpecs& specs);

}  // namespace kv
