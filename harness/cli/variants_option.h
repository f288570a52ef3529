// The syntax of `--variants`.
#pragma once

#include <string>
#include <vector>

#include "variants/model_cache/layer_specs.h"

namespace kv::cli {

// Parses specs, which may be per layer, separated by ';', with lists in braces (config/braces.h). Throws
// std::invalid_argument for no spec and for one given twice.
std::vector<LayerSpecs> parse_variants(const std::string& text);

}  // namespace kv::cli
