#include "harness/config/layer_rules.h"

#include <muParser.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "harness/io/json.h"
#include "harness/io/text.h"

namespace kv::config {
namespace {

using nlohmann::json;
using File = ModelSettings;
using Layers = std::vector<ModelLayer>;

bool is_window(const std::string& kind) { return kind == "sliding" || kind == "chunked"; }

void set_kind(const File& file, ModelLayer& layer, const std::string& kind) {
  layer.kind = kind;
  if (is_window(kind))
    layer.window =
        file.count(kind == "chunked" ? "attention_chunk_size" : "sliding_window", ModelSettings::kMostCount);
}

// Sets the layers from a list of their kinds under `key`; false if the file has none. "hybrid" is attention and a state;
// "moe" and "mlp" keep nothing, and a state of constant size is "mamba" or "linear" as the list calls it.
bool listed(const File& file, const std::string& key, Layers& layers) {
  if (!file.has(key)) return false;
  for (const char* behind : {"sliding_window", "sliding_window_pattern", "max_window_layers",
                             "use_sliding_window", "full_attention_interval"})
    file.has(behind);  // read, since the list says the same
  static const std::map<std::string, std::string> kinds{{"full_attention", "full"},
                                                        {"attention", "full"},
                                                        {"hybrid", "full"},
                                                        {"g", "full"},
                                                        {"sliding_attention", "sliding"},
                                                        {"chunked_attention", "chunked"},
                                                        {"linear_attention", "linear"},
                                                        {"mamba", "mamba"},
                                                        {"m", "mamba"},
                                                        {"mamba2", "mamba"},
                                                        {"conv", "conv"},
                                                        {"short_conv", "conv"},
                                                        {"recurrent", "recurrent"},
                                                        {"moe", "none"},
                                                        {"mlp", "none"}};
  const json& types = file.object()[key];
  if (!types.is_array() || types.size() != layers.size())
    file.refuse("'" + key + "' must be a list of num_hidden_layers (" + std::to_string(layers.size()) +
                ") names");
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto kind = types[i].is_string() ? kinds.find(types[i].get<std::string>()) : kinds.end();
    if (kind == kinds.end())
      file.refuse("'" + key + "' has " + io::shown(types[i]) +
                  ", and kvlab knows full_attention, sliding_attention, chunked_attention, linear_attention, "
                  "mamba, conv, recurrent, moe and mlp");
    set_kind(file, layers[i], kind->second);
  }
  return true;
}

// A name's value at each layer, for an expression that may divide by it.
std::vector<double> column_of(const File& file, const std::string& name, const std::string& text,
                              size_t layers) {
  std::vector<double> column(layers);
  if (name == "i") {
    std::iota(column.begin(), column.end(), 0.0);
    return column;
  }
  const size_t prefix = name.find('_') + 1;
  const std::string_view kind = std::string_view(name).substr(0, prefix);
  const std::string key = kind == "has_" || kind == "in_" || kind == "at_" ? name.substr(prefix) : name;
  if (kind == "in_" || kind == "at_") {
    if (file.is_off(key) && text.find("has_" + key) != std::string::npos) return column;
    const json& list = file.list(key);
    if (kind == "at_" && list.size() != layers)
      file.refuse(key, "a list of num_hidden_layers (" + std::to_string(layers) + ") numbers");
    for (size_t i = 0; i < layers; ++i) {
      const bool holds = kind == "in_" ? std::ranges::count(list, json(i)) > 0 : list[i] == true;
      column[i] = kind == "at_" && list[i].is_number() ? list[i].get<double>() : holds;
    }
    return column;
  }
  const bool is_flag = name.starts_with("use_") || name.ends_with("_enabled");
  const double value = name == "layers"                              ? static_cast<double>(layers)
                       : kind == "has_"                              ? !file.is_off(key)
                       : is_flag                                     ? file.flag(name, false)
                       : text.find("% " + name) != std::string::npos ? file.count(name)
                                                                     : file.count_or_zero(name);
  column.assign(layers, value);
  return column;
}

// The values of an expression of configs/model_types.json, one per layer.
std::vector<double> evaluated(const File& file, const std::string& text, size_t layers) {
  try {
    mu::Parser parser;
    parser.DefineOprt(
        "%", +[](double a, double b) { return std::fmod(a, b); }, mu::prMUL_DIV, mu::oaLEFT, true);
    parser.DefineFun(
        "floor", +[](double x) { return std::floor(x); });
    parser.SetExpr(text);
    std::map<std::string, std::vector<double>> columns;
    for (const auto& [name, unset] : parser.GetUsedVar()) columns[name] = column_of(file, name, text, layers);
    for (auto& [name, column] : columns) parser.DefineVar(name, column.data());
    std::vector<double> values(layers);
    parser.Eval(values.data(), static_cast<int>(layers));
    return values;
  } catch (const mu::ParserError& error) {
    throw std::invalid_argument("configs/model_types.json: '" + text + "': " + error.GetMsg());
  }
}

// Cycles through letters, the last layer being global: "LLLG".
void set_letters(const File& file, const std::string& key, Layers& layers) {
  const std::string letters = file.text(key, "");
  if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)
    file.refuse(key, "the letters L and G, or a positive integer");
  for (size_t i = 0; i + 1 < layers.size(); ++i)
    if (letters[i % letters.size()] == 'L') set_kind(file, layers[i], "sliding");
}

// The last num_kv_shared_layers read the cache of the last earlier layer of their kind.
void shared_by_the_last(const File& file, Layers& layers) {
  const int sharing = file.count_or_zero("num_kv_shared_layers"), count = static_cast<int>(layers.size());
  if (sharing >= count)
    file.refuse("num_kv_shared_layers", "less than num_hidden_layers (" + std::to_string(count) + ")");
  for (int layer = count - sharing; layer < count; ++layer) {
    ModelLayer& of = layers[static_cast<size_t>(layer)];
    for (int source = 0; source < count - sharing; ++source)
      if (layers[static_cast<size_t>(source)].kind == of.kind) of.shares = source;
    if (of.shares < 0)
      file.refuse("layer " + std::to_string(layer) +
                  " shares its K and V, and no earlier layer is of its kind '" + of.kind + "'");
  }
}

// Kimi Linear counts its layers from 1.
void full_attn_layers(const File& file, Layers& layers) {
  const File own = file.inner("linear_attn_config");
  const json& full = own.list("full_attn_layers");
  for (size_t i = 0; i < layers.size(); ++i)
    if (std::ranges::count(full, json(i + 1)) == 0) layers[i].kind = "linear";
}

// Nemotron-H: M is a Mamba layer, * attention, - an MLP and E experts.
void override_letters(const File& file, Layers& layers) {
  const std::string all = file.text("hybrid_override_pattern", "");
  if (all.size() != layers.size() || all.find_first_not_of("M*-E") != std::string::npos)
    file.refuse("hybrid_override_pattern",
                "num_hidden_layers (" + std::to_string(layers.size()) + ") letters of M, *, - and E");
  for (size_t i = 0; i < layers.size(); ++i)
    layers[i].kind = all[i] == '*' ? "full" : all[i] == 'M' ? "mamba" : "none";
}

// Griffin repeats its block_types; its attention is local.
void blocks(const File& file, Layers& layers) {
  const json& types = file.list("block_types");
  if (types.empty()) file.refuse("block_types", "names of blocks");
  for (size_t i = 0; i < layers.size(); ++i) {
    set_kind(file, layers[i], types[i % types.size()] == "attention" ? "sliding" : "recurrent");
  }
}

// Hymba (arXiv:2411.13676): groups of layers that share.
void reuse_groups(const File& file, Layers& layers) {
  if (file.is_off("kv_reuse_group")) return;
  for (const json& group : file.list("kv_reuse_group")) {
    for (const json& layer : group) {
      const bool good = layer.is_number_unsigned() && layer < layers.size() &&
                        group[0].is_number_unsigned() && group[0] <= layer;
      if (!good) file.refuse("kv_reuse_group", "lists of layers, in ascending order");
      if (layer != group[0]) layers[layer.get<size_t>()].shares = group[0].get<int>();
    }
  }
}

void repeat(Layers& layers, int64_t times) {
  const Layers once = layers;
  for (int64_t i = 1; i < times; ++i) layers.insert(layers.end(), once.begin(), once.end());
}

void looped(const File& file, Layers& layers) { repeat(layers, file.count("total_ut_steps", 1000)); }

void twice(const File&, Layers& layers) { repeat(layers, 2); }

using Step = void (*)(const File& file, Layers& layers);

// The steps that no expression says, by their names.
Step step_of(const std::string& name) {
  static const std::map<std::string, Step> steps{{"shared_by_the_last", shared_by_the_last},
                                                 {"full_attn_layers", full_attn_layers},
                                                 {"override_letters", override_letters},
                                                 {"blocks", blocks},
                                                 {"reuse_groups", reuse_groups},
                                                 {"looped", looped},
                                                 {"twice", twice}};
  const auto found = steps.find(name);
  if (found == steps.end())
    throw std::invalid_argument("configs/model_types.json: unknown step '" + name +
                                "'; layer_rules.cc has the known ones");
  return found->second;
}

void set_kinds(const json& rule, const File& file, Layers& layers) {
  const std::string letters = rule.value("letters", "");
  if (!letters.empty() && file.object().value(letters, json()).is_string())
    return set_letters(file, letters, layers);
  const json kinds = rule.value("kinds", json::object());
  if (kinds.is_string()) return step_of(kinds)(file, layers);
  for (const auto& [kind, text] : kinds.items()) {
    const std::vector<double> holds = evaluated(file, text, layers.size());
    for (size_t i = 0; i < layers.size(); ++i)
      if (holds[i] != 0 && layers[i].kind == "full") set_kind(file, layers[i], kind);
  }
  if (!rule.contains("shares")) return;
  const std::vector<double> source = evaluated(file, rule["shares"], layers.size());
  for (size_t i = 0; i < layers.size(); ++i)
    if (source[i] != static_cast<double>(i)) layers[i].shares = static_cast<int>(source[i]);
}

// The first architecture of Falcon has one KV head whatever else the file says.
void multi_query(File& file) {
  if (file.flag("multi_query", false) && !file.flag("new_decoder_architecture", false))
    file.set(1, "num_key_value_heads");
}

void query_groups(File& file) {
  if (file.flag("multi_query_attention", false))
    file.set(file.count("multi_query_group_num"), "num_key_value_heads");
}

void attention_config(File& file) {
  const ModelSettings attention = file.inner("attn_config");
  if (attention.has("kv_n_heads")) file.set(attention.count("kv_n_heads"), "num_key_value_heads");
  if (attention.text("attn_type", "") == "multiquery_attention") file.set(1, "num_key_value_heads");
  if (attention.has("sliding_window_size") && attention.object()["sliding_window_size"] != -1)
    file.set(attention.count("sliding_window_size"), "sliding_window");
}

// Nemotron-H's newer files leave the number of layers to their list.
void as_many_as_listed(File& file) {
  if (!file.has("num_hidden_layers") && file.has("layers_block_type"))
    file.set(static_cast<int64_t>(file.list("layers_block_type").size()), "num_hidden_layers");
}

// Hymba's values are as wide as its Mamba state's inputs, its keys as other models'. Rows of the mean width have as many bytes.
void mean_of_widths(File& file) {
  if (file.has("head_dim")) return;
  const int64_t heads = file.count("num_attention_heads"), hidden = file.count("hidden_size"),
                values = hidden * file.count("mamba_expand") / heads;
  const json key = file.object().value("kq_head_dim", json(-1));
  const int64_t keys = key.is_number_integer() && key > 0 ? file.count("kq_head_dim") : hidden / heads;
  if (hidden % heads == 0 && (keys + values) % 2 == 0) file.set((keys + values) / 2, "head_dim");
}

// Zamba2's attention is over the hidden state and the embedding together.
void twice_as_wide(File& file) {
  if (file.has("head_dim")) return;
  const int wide = 2 * file.count("hidden_size"), heads = file.count("num_attention_heads");
  if (wide % heads == 0) file.set(wide / heads, "head_dim");
}

}  // namespace

void apply_layer_rule(const json& rule, const ModelSettings& file, std::vector<ModelLayer>& layers) {
  if (rule.contains("if") && evaluated(file, rule["if"], 1).front() == 0) return;
  const json keys = rule.value("listed", json::array());
  if (std::ranges::none_of(keys, [&](const json& key) { return listed(file, key, layers); })) {
    if (rule.size() == 1 && !keys.empty()) file.refuse(keys.front(), "a list of num_hidden_layers names");
    if (!rule.contains("needs") || file.has(rule["needs"])) set_kinds(rule, file, layers);
  }
  if (rule.contains("then")) step_of(rule["then"])(file, layers);
}

const std::map<std::string, SizeRule>& size_rules() {
  static const std::map<std::string, SizeRule> rules{{"multi_query", multi_query},
                                                     {"query_groups", query_groups},
                                                     {"attention_config", attention_config},
                                                     {"twice_as_wide", twice_as_wide},
                                                     {"as_many_as_listed", as_many_as_listed},
                                                     {"mean_of_widths", mean_of_widths}};
  return rules;
}

}  // namespace kv::config
