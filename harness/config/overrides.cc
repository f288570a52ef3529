#include "harness/config/overrides.h"

#include <toml++/toml.h>
#include <charconv>
#include <filesystem>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "harness/config/section.h"
#include "harness/io/model_files.h"
#include "harness/io/paths.h"

namespace kv::config {
namespace {

// Sets the value under `a.b.c`; a number counts the tables of an array from 0, as in `serve.0.requests`.
void override_value(toml::table& root, const std::string& key, toml::node&& value) {
  toml::table* at = &root;
  std::stringstream parts(key);
  std::string part, next;
  std::getline(parts, part, '.');
  while (std::getline(parts, next, '.')) {
    if (!at->contains(part)) at->insert(part, toml::table{});
    toml::node* node = at->get(part);
    if (toml::array* several = node->as_array(); several && several->is_homogeneous<toml::table>()) {
      const std::string last = std::to_string(several->size() - 1);
      size_t number = several->size();
      std::from_chars(next.data(), next.data() + next.size(), number);
      if (number >= several->size() || std::to_string(number) != next || !std::getline(parts, next, '.'))
        throw std::invalid_argument("--set " + key + ": '" + part +
                                    "' has several tables; name one of them and a key, " + part +
                                    ".0.KEY to " + part + "." + last + ".KEY");
      node = several->get(number);
    }
    at = node->as_table();
    if (!at) throw std::invalid_argument("--set " + key + ": '" + part + "' is not a table");
    part = next;
  }
  at->insert_or_assign(part, std::move(value));  // moved, a node keeps where it is from
}

// A text as TOML.
std::string toml_text(const std::string& text) {
  std::ostringstream quoted;
  quoted << toml::value<std::string>(text);
  return quoted.str();
}

// TOML, in which [4K,128K] needs no quotes; anything else is text. Its place is "--set".
toml::table value_of(const std::string& text) {
  static const std::regex bare_count(R"(([\[,]\s*)(\d+[KkMm])(?=\s*[\],]))");
  const std::string quoted = toml_text(text);
  for (const std::string& value : {text, std::regex_replace(text, bare_count, "$1\"$2\""), quoted}) {
    try {
      return toml::parse("value = " + value, std::string_view("--set"));
    } catch (const toml::parse_error&) {
      continue;
    }
  }
  return toml::table{{"value", text}};  // no UTF-8, as a path may be
}

// `a.b.c=value`: the value is TOML, or else text.
void apply_override(toml::table& root, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw std::invalid_argument("--set " + assignment +
                                ": expected key=value, as in --set measure.repetitions=3");
  }
  const std::string key = assignment.substr(0, equals), text = assignment.substr(equals + 1);
  refuse_deep_toml(key + " = " + text, "--set");
  override_value(root, key, std::move(*value_of(text).get("value")));
}

// Makes a file's path absolute, so that the config as run means the same from any folder. The project's own files are
// found from every folder and keep their names on every machine.
void settle_path(toml::table& root, const char* section, const char* key) {
  const auto settle = [&](toml::value<std::string>& path) {
    if (path->empty()) return;
    const bool may_be_folder = std::string_view(key) == "model";
    const auto place =
        may_be_folder ? io::find_model(*path) : io::find_input(*path, std::string(section) + "." + key);
    std::error_code ignored;
    if (!std::filesystem::exists(place, ignored)) return;  // a model of a package, by its name
    if (std::filesystem::equivalent(place, io::project_home() / *path, ignored)) return;
    *path = std::filesystem::absolute(place).lexically_normal().string();
  };
  toml::node* node = root.at_path(std::string(section) + "." + key).node();
  if (!node) return;
  if (auto* one = node->as_string()) settle(*one);
  if (toml::array* several = node->as_array()) {
    for (toml::node& item : *several) {
      if (auto* one = item.as_string()) settle(*one);
    }
  }
}

// [key], or each [[key]].
std::vector<toml::table*> tables_under(toml::table& root, std::string_view key) {
  std::vector<toml::table*> tables;
  if (toml::table* one = root[key].as_table()) tables.push_back(one);
  if (toml::array* several = root[key].as_array()) {
    for (toml::node& item : *several) {
      if (item.is_table()) tables.push_back(item.as_table());
    }
  }
  return tables;
}

}  // namespace

void apply_overrides(toml::table& root, const Overrides& overrides, const std::string& name,
                     const Catalog& catalog) {
  for (const std::string& assignment : overrides.set) apply_override(root, assignment);
  if (overrides.seed >= 0) root.insert_or_assign("seed", overrides.seed);
  if (overrides.threads > 0) root.insert_or_assign("threads", overrides.threads);
  if (!overrides.isa.empty()) root.insert_or_assign("isa", overrides.isa);
  if (!overrides.arithmetic.empty()) root.insert_or_assign("arithmetic", overrides.arithmetic);
  if (!overrides.device.empty()) root.insert_or_assign("device", overrides.device);
  if (!root.contains("name")) root.insert("name", name);
  const WorkloadConfig& w = overrides.workload;
  const auto set_text = [&](const std::string& key, const std::string& text) {
    if (!text.empty()) override_value(root, key, toml::value<std::string>(text));
  };
  if (toml::table* old = root["workload"].as_table(); old && !w.model.empty()) {
    // Another model's tokenizer and text do not fit this one.
    old->erase("tokenizer");
    old->erase("text");
    old->erase("weights");
    old->erase("weights_type");
  }
  set_text("workload.model", w.model);
  set_text("workload.tokenizer", w.tokenizer);
  toml::array texts;
  for (const std::string& text : w.texts) texts.push_back(text);
  if (texts.size() == 1) set_text("workload.text", w.texts.front());
  if (texts.size() > 1) override_value(root, "workload.text", std::move(texts));
  if (!w.model.empty()) {
    // A model on the command line is to be measured, whatever the config sweeps over.
    set_text("sweep.workload", "model");
    for (const ExperimentInfo& experiment : catalog.experiments) {
      for (toml::table* own : tables_under(root, experiment.own_table())) own->erase("workload");
    }
  }
  for (const char* key : {"dump", "model", "tokenizer", "text"}) settle_path(root, "workload", key);
  settle_path(root, "model", "config");
}

}  // namespace kv::config
