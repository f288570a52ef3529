// The model_types whose config.json files are understood (configs/model_types.json), and the one reading of such a file.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/config/layer_rules.h"
#include "harness/config/model_settings.h"

namespace kv::config {

struct ModelType {
  nlohmann::json layers;                                     // the rule of apply_layer_rule()
  SizeRule sizes = nullptr;                                  // or none
  std::set<std::string> keys;                                // that its files may have, in their names
  std::vector<std::pair<std::string, std::string>> renamed;  // a name in files, and the common one
  nlohmann::json defaults = nlohmann::json::object();        // its class's values for keys that a file lacks
  bool latent = false;                                       // MLA
  std::string note;                                          // a clause for those who read a size
};

// A config.json as its model_type's class reads it: the text model of a multimodal one, with the keys' common names and the
// class's defaults.
struct ModelFile {
  ModelSettings settings;
  const ModelType* type = nullptr;  // none: not in the table
  bool is_part = false;             // of a multimodal model, with other weights beside these
  // The file's keys that might change what layers keep, by their names, and that the type does not have; for a type that is
  // not in the table, those that are not common to all. Keys that are off (ModelSettings::is_off) do not count.
  std::vector<std::string> unknown = {};
};

// Throws std::invalid_argument with the file if it is no JSON object.
ModelFile read_model_file(const std::string& path);

// Throws std::invalid_argument where sizes would be wrong: for a type whose layers cannot be counted; and, unless `trusted`,
// for a type that is not in the table, and for unknown keys.
void check_known(const ModelFile& file, bool trusted);

// The key that says how many layers the file has for drafts beside num_hidden_layers; empty if there are none.
std::string draft_key(const ModelSettings& file);

}  // namespace kv::config
