#include "harness/geometry.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "harness/paths.h"

namespace kv {
namespace {

using nlohmann::json;

// A positive integer under `key`, or `fallback` where the key is missing or null; with fallback 0 it must be
// there.
int positive(const json& config, const std::string& path, const char* key, int fallback) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    if (fallback > 0) return fallback;
    throw std::invalid_argument(path + ": '" + key + "' is missing; a Hugging Face config.json has it");
  }
  if (!found->is_number_integer() || found->get<int64_t>() < 1 || found->get<int64_t>() > 1'000'000) {
    throw std::invalid_argument(path + ": '" + key + "' must be a positive integer, not " + found->dump());
  }
  return found->get<int>();
}

}  // namespace

Geometry read_geometry(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument("cannot read " + path);
  json config = json::parse(file, nullptr, false);
  if (!config.is_object())
    throw std::invalid_argument(path + ": not a JSON object; a Hugging Face config.json is one");
  if (config.contains("text_config") && config["text_config"].is_object()) config = config["text_config"];
  Geometry g;
  g.name = std::filesystem::path(path).stem().string();
  g.layers = positive(config, path, "num_hidden_layers", 0);
  g.q_heads = positive(config, path, "num_attention_heads", 0);
  g.kv_heads = positive(config, path, "num_key_value_heads", g.q_heads);
  // Since Mistral and Gemma, head_dim is a number of its own; only older configs leave it to be divided out.
  const bool stated = config.contains("head_dim") && !config["head_dim"].is_null();
  g.head_dim =
      stated ? positive(config, path, "head_dim", 0) : positive(config, path, "hidden_size", 0) / g.q_heads;
  if (g.q_heads % g.kv_heads != 0) {
    throw std::invalid_argument(path + ": num_attention_heads (" + std::to_string(g.q_heads) +
                                ") must be a multiple of num_key_value_heads (" + std::to_string(g.kv_heads) +
                                ")");
  }
  return g;
}

Geometry preset_geometry(const std::string& name) {
  const std::filesystem::path folder = project_home() / "configs" / "models";
  const std::filesystem::path file = folder / (name + ".json");
  if (name.find('/') == std::string::npos && std::filesystem::exists(file)) {
    Geometry g = read_geometry(file.string());
    g.name = name;
    return g;
  }
  std::vector<std::string> names;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  std::string known;
  for (const std::string& n : names) known += (known.empty() ? "" : ", ") + n;
  throw std::invalid_argument("model preset '" + name + "' is not one of: " + known);
}

}  // namespace kv
