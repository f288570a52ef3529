#include "harness/config/model_types.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "harness/io/json.h"
#include "harness/io/paths.h"
#include "variants/cache/near_names.h"

namespace kv::config {
namespace {

using nlohmann::json;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream all(text);
  return {std::istream_iterator<std::string>(all), {}};
}

// configs/model_types.json.
class TypeTable {
 public:
  // Throws std::invalid_argument for a table that is not as its `about` says.
  TypeTable() {
    const std::string path = (io::project_home() / "configs" / "model_types.json").string();
    try {
      read_all(io::read_json_object(path, "the table of model_types"));
    } catch (const json::exception& e) {
      throw std::invalid_argument(path + ": " + e.what());
    }
  }

  const ModelType* find(const std::string& name) const {
    const auto found = types_.find(name);
    return found == types_.end() ? nullptr : &found->second;
  }
  std::string uncounted(const std::string& name) const {
    const auto found = uncounted_.find(name);
    return found == uncounted_.end() ? "" : found->second;
  }
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> names;
    for (const auto& [name, type] : types_) names.push_back(name);
    return names;
  }
  bool is_common(const std::string& key) const { return common_.contains(key); }
  const std::vector<std::string>& drafts() const { return drafts_; }

 private:
  void read_all(const json& table) {
    drafts_ = words_of(table.at("drafts"));
    for (const std::string& key : words_of(table.at("common"))) common_.insert(key);
    common_.insert(drafts_.begin(), drafts_.end());
    for (const json& row : table.at("types")) {
      const ModelType type = read(row, table);
      for (const std::string& name : words_of(row.at("names"))) types_.emplace(name, type);
    }
    for (const auto& [names, reason] : table.at("uncounted").items())
      for (const std::string& name : words_of(names)) uncounted_.emplace(name, reason);
  }

  static ModelType read(const json& row, const json& table) {
    const json& lists = table.at("lists");
    ModelType type{.layers = table.at("rules").at(row.at("layers").get<std::string>()),
                   .keys = {},
                   .renamed = {},
                   .defaults = row.value("defaults", json::object()),
                   .latent = row.value("latent", false),
                   .note = row.value("note", "")};
    if (row.contains("sizes")) type.sizes = size_rules().at(row["sizes"]);
    for (const std::string& word : words_of(row.value("keys", ""))) {
      for (const std::string& key : words_of(word[0] == '@' ? lists.at(word.substr(1)) : json(word))) {
        const size_t is = key.find('=');
        type.keys.insert(key.substr(0, is));
        if (is != std::string::npos) type.renamed.emplace_back(key.substr(0, is), key.substr(is + 1));
      }
    }
    return type;
  }

  std::set<std::string> common_;
  std::vector<std::string> drafts_;
  std::map<std::string, ModelType> types_;
  std::map<std::string, std::string> uncounted_;  // and why
};

const TypeTable& table() {
  static const TypeTable types;
  return types;
}

// True if a key of this name might change what a layer keeps.
bool may_matter(std::string key) {
  constexpr std::array kParts{"head",    "kv",    "layer", "window", "attn",  "attention", "share",
                              "sharing", "group", "query", "index",  "mixer", "step",      "chunk",
                              "conv",    "ssm",   "mamba", "rope",   "cache"};
  std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return std::tolower(c); });
  return ("_" + key + "_").find("_ut_") != std::string::npos ||
         std::any_of(kParts.begin(), kParts.end(),
                     [&](const char* part) { return key.find(part) != std::string::npos; });
}

std::string model_type(const ModelSettings& file) { return file.text("model_type", ""); }

std::vector<std::string> unknown_keys(const ModelSettings& file, const ModelType* type) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : file.object().items()) {
    const bool known = table().is_common(key) || (type && type->keys.contains(key));
    if (!known && may_matter(key) && !file.is_off(key)) unknown.push_back(key);
  }
  return unknown;
}

// The text model of a multimodal one; the outer level has the dtype and count of the weights.
json text_model(const json& whole, bool& is_part) {
  for (const char* name : {"text_config", "llm_config", "language_config"}) {
    if (!whole.contains(name) || !whole[name].is_object()) continue;
    is_part = true;
    json text = whole[name];
    for (const char* key : {"torch_dtype", "dtype", "quantization_config", "num_parameters"})
      if (!text.contains(key) && whole.contains(key)) text[key] = whole[key];
    return text;
  }
  return whole;
}

}  // namespace

ModelFile read_model_file(const std::string& path) {
  bool is_part = false;
  const json text = text_model(io::read_json_object(path, "a Hugging Face config.json"), is_part);
  ModelFile file{.settings = {text, path}, .is_part = is_part};
  file.type = table().find(model_type(file.settings));
  file.unknown = unknown_keys(file.settings, file.type);
  if (!file.type) return file;
  for (const auto& [other, key] : file.type->renamed) file.settings.rename(other, key);
  file.settings.set_defaults(file.type->defaults);
  if (file.type->sizes) file.type->sizes(file.settings);
  return file;
}

void check_known(const ModelFile& file, bool trusted) {
  const ModelSettings& settings = file.settings;
  const std::string name = model_type(settings),
                    remedy = "; --trust-config, or trust_config = true in [model], counts ";
  if (const std::string reason = table().uncounted(name); !reason.empty())
    settings.refuse("model_type '" + name + "': " + reason);
  if (settings.flag("is_encoder_decoder", false))
    settings.refuse("is_encoder_decoder", "false: " + table().uncounted("t5"));
  if (trusted) return;
  const std::string all = remedy + "K and V of every token in every layer";
  if (name.empty()) settings.refuse("'model_type' is missing, which says what the layers keep" + all);
  if (!file.type)
    settings.refuse("kvlab does not know what the layers of model_type '" + name + "' keep" + all +
                    did_you_mean(name, table().names()));
  if (!file.unknown.empty())
    settings.refuse("'" + file.unknown.front() + "' may change what the layers of a " + name +
                    " model keep, and kvlab does not know it" + remedy + "without it");
}

std::string draft_key(const ModelSettings& file) {
  for (const std::string& key : table().drafts())
    if (!file.is_off(key)) return key;
  return "";
}

}  // namespace kv::config
