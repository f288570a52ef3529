// The rules by which the types in configs/model_types.json say what their layers keep.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/config/model_settings.h"
#include "variants/model_cache/model_layer.h"

namespace kv::config {

// Tells what each layer keeps by a rule of configs/model_types.json, whose `about` says how rules are written. `layers`:
// [num_hidden_layers], all "full"; a rule makes it longer where a layer has several caches. Throws std::invalid_argument with
// the file and the key.
void apply_layer_rule(const nlohmann::json& rule, const ModelSettings& file, std::vector<ModelLayer>& layers);

// Sets keys whose facts the files of a type state in another way. Throws likewise.
using SizeRule = void (*)(ModelSettings& file);
const std::map<std::string, SizeRule>& size_rules();

}  // namespace kv::config
