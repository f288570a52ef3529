#include "harness/config/section.h"

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/io/bytes.h"
#include "harness/io/mapped_file.h"
#include "harness/io/suggestion.h"
#include "harness/io/text.h"

namespace kv::config {

using nlohmann::json;

namespace {

// "file.toml:12", or "--set" for a value of the command line.
std::string place_of(const toml::node& node, const std::string& file) {
  const toml::source_region& from = node.source();
  if (from.path && *from.path == "--set") return *from.path;
  return from.begin.line > 0 ? file + ":" + std::to_string(from.begin.line) : file;
}

// JSON schemas of values. The largest integer is no limit.
json schema_of(const char* type, auto min, auto max) {
  json schema{{"type", type}, {"minimum", min}};
  if (max != std::numeric_limits<decltype(max)>::max()) schema["maximum"] = max;
  return schema;
}

json schema_of_text(const std::vector<std::string>& known = {}) {
  json schema{{"type", "string"}};
  if (!known.empty()) schema["enum"] = known;
  return schema;
}

json schema_of_tokens(int64_t min, int64_t max) {
  const json text{{"type", "string"}, {"pattern", "^-?[0-9]+[KkMm]?$"}};
  return {{"anyOf", {schema_of("integer", min, max), text}}};
}

json schema_of_bytes() {
  return {{"type", "string"}, {"pattern", "^[0-9.]+(e[0-9]+)? ?([kKMGTP]B|[KMGTP]iB|B)$"}};
}

json one_or_several(const json& value) {
  return {{"anyOf", {value, {{"type", "array"}, {"items", value}, {"minItems", 1}}}}};
}

constexpr int kMostParts = 16, kMostNested = 64;

// The end of the string that begins at `at`, or of the text if the string does not end.
size_t string_end(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool multiline = text.substr(at, 3) == three;
  for (at += multiline ? 3 : 1; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (multiline ? text.substr(at, 3) == three : text[at] == quote || text[at] == '\n') {
      return at + (multiline ? 3 : text[at] == quote);
    }
  }
  return text.size();
}

}  // namespace

toml::table parse_toml(std::string_view text, const std::string& path) {
  refuse_deep_toml(text, path);
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& e) {
    throw std::invalid_argument(path + ":" + std::to_string(e.source().begin.line) + ": " +
                                std::string(e.description()));
  }
}

toml::table parse_toml_file(const std::string& path) { return parse_toml(io::read_text(path), path); }

Section::Section(const toml::table& table, std::string file, std::string path, json* schema)
    : table_(&table), file_(std::move(file)), path_(std::move(path)), schema_(schema) {
  if (!schema_) return;
  (*schema_)["type"] = "object";
  (*schema_)["additionalProperties"] = false;
}

bool Section::has(const std::string& key) { return take(key) != nullptr; }

void Section::explain(std::string_view key, std::string_view help) {
  if (schema_) (*schema_)["properties"][std::string(key)]["description"] = help;
}

void Section::note(const std::string& key, const json& values) {
  if (schema_) (*schema_)["properties"][key].update(values);
}

bool Section::is_array(const std::string& key) const {
  const toml::node* node = table_->get(key);
  return node && node->is_array();
}

void Section::fail(const std::string& key, const std::string& what) const {
  const toml::node* node = table_->get(key);
  throw std::invalid_argument(place_of(node ? *node : *table_, file_) + ": " + child(key) + " " + what);
}

void Section::refuse(const std::string& what) const {
  throw std::invalid_argument(place_of(*table_, file_) + ": [" + path_ + "] " + what);
}

std::string Section::place() const { return place_of(*table_, file_) + ": " + path_; }

std::string Section::text(const std::string& key, const std::string& fallback) {
  const toml::node* node = take(key);
  note(key, schema_of_text());
  if (!node) return fallback;
  if (!node->is_string()) fail(key, "must be text in quotes");
  return node->value<std::string>().value();
}

std::string Section::choice(const std::string& key, const std::string& fallback,
                            const std::vector<std::string>& known) {
  const std::string value = text(key, fallback);
  note(key, schema_of_text(known));
  if (std::find(known.begin(), known.end(), value) == known.end())
    fail(key, "is '" + value + "'" + io::known_names(value, known));
  return value;
}

int64_t Section::integer(const std::string& key, int64_t fallback, int64_t min, int64_t max) {
  const toml::node* node = take(key);
  note(key, schema_of("integer", min, max));
  return node ? checked(key, *node, min, max) : fallback;
}

int64_t Section::tokens(const std::string& key, int64_t fallback, int64_t min, int64_t max) {
  const toml::node* node = take(key);
  note(key, schema_of_tokens(min, max));
  return node ? checked_tokens(key, *node, min, max) : fallback;
}

int64_t Section::bytes(const std::string& key, int64_t fallback, int64_t min, int64_t max) {
  const toml::node* node = take(key);
  note(key, schema_of_bytes());
  if (!node) return fallback;
  if (!node->is_string()) fail(key, "must be a number of bytes with a unit, such as \"4GiB\"");
  try {
    return in_range(key, io::parse_bytes(node->value<std::string>().value(), child(key)), min, max);
  } catch (const std::invalid_argument& e) {
    fail(key, std::string("is no number of bytes: ") + e.what());
  }
}

bool Section::boolean(const std::string& key, bool fallback) {
  const toml::node* node = take(key);
  note(key, {{"type", "boolean"}});
  if (!node) return fallback;
  if (!node->is_boolean()) fail(key, "must be true or false");
  return node->value<bool>().value();
}

double Section::number(const std::string& key, double fallback, double min, double max) {
  const toml::node* node = take(key);
  note(key, schema_of("number", min, max));
  return node ? checked(key, *node, min, max) : fallback;
}

std::vector<double> Section::numbers(const std::string& key, const std::vector<double>& fallback, double min,
                                     double max) {
  note(key, one_or_several(schema_of("number", min, max)));
  std::vector<double> values;
  for (const toml::node* node : items(key)) values.push_back(checked(key, *node, min, max));
  return values.empty() ? fallback : values;
}

std::vector<int64_t> Section::integers(const std::string& key, const std::vector<int64_t>& fallback,
                                       int64_t min, int64_t max) {
  note(key, one_or_several(schema_of("integer", min, max)));
  std::vector<int64_t> values;
  for (const toml::node* node : items(key)) values.push_back(checked(key, *node, min, max));
  return values.empty() ? fallback : values;
}

std::vector<int64_t> Section::token_list(const std::string& key, const std::vector<int64_t>& fallback,
                                         int64_t min, int64_t max) {
  note(key, one_or_several(schema_of_tokens(min, max)));
  std::vector<int64_t> values;
  for (const toml::node* node : items(key)) values.push_back(checked_tokens(key, *node, min, max));
  return values.empty() ? fallback : values;
}

std::vector<std::string> Section::texts(const std::string& key, const std::vector<std::string>& fallback,
                                        const std::vector<std::string>& known) {
  note(key, one_or_several(schema_of_text(known)));
  std::vector<std::string> values;
  for (const toml::node* node : items(key)) {
    if (!node->is_string()) fail(key, "must be text in quotes, or an array of such texts");
    const std::string& value = values.emplace_back(node->value<std::string>().value());
    if (!known.empty() && std::find(known.begin(), known.end(), value) == known.end())
      fail(key, "has '" + value + "'" + io::known_names(value, known));
  }
  return values.empty() ? fallback : values;
}

std::string Section::verbatim(const std::string& key, const std::string& fallback) {
  const toml::node* node = take(key);
  return node ? written(key, *node) : fallback;
}

std::vector<std::vector<std::string>> Section::verbatim_rows(const std::string& key, size_t columns) {
  std::vector<std::vector<std::string>> rows;
  for (const toml::node* node : items(key)) {
    if (!node->is_array()) fail(key, "must be an array of rows, such as [[128, \"0.67\"], [1024, \"5.37\"]]");
    std::vector<std::string>& row = rows.emplace_back();
    for (const toml::node& value : *node->as_array()) row.push_back(written(key, value));
    if (row.size() != columns) {
      fail(key, "has a row of " + std::to_string(row.size()) + " values" +
                    (row.empty() ? "" : ", which begins with '" + row.front() + "'") + "; the table has " +
                    std::to_string(columns) + " columns");
    }
  }
  return rows;
}

std::map<std::string, std::string> Section::all_verbatim() {
  std::map<std::string, std::string> values;
  for (const auto& [key, node] : *table_) {
    const std::string name(key.str());
    values[name] = verbatim(name, "");
  }
  return values;
}

Section Section::section(const std::string& key) {
  static const toml::table nothing;
  const toml::node* node = take(key);
  if (node && !node->is_table()) fail(key, "must be a table");
  return {node ? *node->as_table() : nothing, file_, child(key),
          schema_ ? &(*schema_)["properties"][key] : nullptr};
}

std::vector<Section> Section::sections(const std::string& key) {
  std::vector<Section> all;
  const toml::node* node = take(key);
  if (!node) return all;
  if (!node->is_array_of_tables()) fail(key, "must be tables, each under [[" + child(key) + "]]");
  for (const toml::node& item : *node->as_array()) {
    const toml::table& table = *item.as_table();
    const auto id = table["id"].value<std::string>();
    all.emplace_back(table, file_,
                     id ? child(key) + "." + *id : child(key) + "[" + std::to_string(all.size()) + "]");
  }
  return all;
}

std::vector<Section> Section::section_or_sections(const std::string& key) {
  const toml::node* node = take(key);
  if (node && node->is_array_of_tables()) return sections(key);
  if (!schema_) return {section(key)};
  const json first{{"$ref", "#/properties/" + key + "/anyOf/0"}};
  json& either = (*schema_)["properties"][key]["anyOf"];
  either = {json::object(), {{"type", "array"}, {"items", first}}};
  return {{*table_, file_, child(key), &either[0]}};
}

std::map<std::string, Section> Section::subsections() {
  std::map<std::string, Section> all;
  for (const auto& [key, node] : *table_) all.emplace(key.str(), section(std::string(key.str())));
  return all;
}

std::vector<std::string> Section::unread() const {
  std::vector<std::string> names;
  for (const auto& [key, node] : *table_) {
    if (!asked_.count(std::string(key.str()))) names.emplace_back(key.str());
  }
  return names;
}

void Section::refuse_the_rest(const std::function<std::string(std::string_view key)>& table_of) const {
  for (const std::string& name : unread()) {
    const std::string table = table_of ? table_of(name) : "";
    if (!table.empty()) fail(name, "is not a key of this table; it belongs in " + table);
    fail(name, "is not a key of this table" + io::known_names(name, asked_));
  }
}

const toml::node* Section::take(const std::string& key) {
  asked_.insert(key);
  note(key, json::object());
  return table_->get(key);
}

std::vector<const toml::node*> Section::items(const std::string& key) {
  const toml::node* node = take(key);
  if (!node) return {};
  if (!node->is_array()) return {node};
  std::vector<const toml::node*> nodes;
  for (const toml::node& item : *node->as_array()) nodes.push_back(&item);
  if (nodes.empty()) fail(key, "is an empty list; give it at least one value");
  return nodes;
}

double Section::checked(const std::string& key, const toml::node& node, double min, double max) const {
  const double value = node.value<double>().value_or(NAN);
  if (!(value >= min && value <= max)) fail(key, io::formatted("must be a number from %g to %g", min, max));
  return value;
}

int64_t Section::checked(const std::string& key, const toml::node& node, int64_t min, int64_t max) const {
  if (!node.is_integer()) fail(key, "must be a whole number");
  return in_range(key, node.value<int64_t>().value(), min, max);
}

int64_t Section::checked_tokens(const std::string& key, const toml::node& node, int64_t min,
                                int64_t max) const {
  if (!node.is_string()) {
    if (!node.is_integer()) fail(key, "must be a whole number of tokens, such as 131072 or \"128K\"");
    return checked(key, node, min, max);
  }
  const std::string text = node.value<std::string>().value();
  const std::optional<int64_t> value = io::parse_token_count(text);
  if (!value) fail(key, "must be a whole number of tokens, such as 131072 or \"128K\", not '" + text + "'");
  return in_range(key, *value, min, max);
}

int64_t Section::in_range(const std::string& key, int64_t value, int64_t min, int64_t max) const {
  if (value >= min && value <= max) return value;
  fail(key, "must be from " + std::to_string(min) + " to " + std::to_string(max) + ", not " +
                std::to_string(value));
}

std::string Section::written(const std::string& key, const toml::node& node) const {
  if (node.is_integer()) return std::to_string(node.value<int64_t>().value());
  if (!node.is_string())
    fail(key, "must be text in quotes or a whole number, so that its digits stay as printed");
  return node.value<std::string>().value();
}

void refuse_deep_toml(std::string_view text, const std::string& path) {
  int parts = 1, nested = 0;
  const auto refuse_beyond = [&](int count, int most, size_t at, const char* what) {
    if (count <= most) return;
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw std::invalid_argument(path + ":" + std::to_string(line) + ": " + what + " more than " +
                                std::to_string(most) + " deep");
  };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = string_end(text, at);
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '.') refuse_beyond(++parts, kMostParts, at, "a dotted key is");
    if (c == '[' || c == '{') refuse_beyond(++nested, kMostNested, at, "brackets are nested");
    if ((c == ']' || c == '}') && nested > 0) --nested;
    if (std::string_view(",=[]{}\n").find(c) != std::string_view::npos) parts = 1;
    ++at;
  }
}

}  // namespace kv::config
