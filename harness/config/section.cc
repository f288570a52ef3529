#include "harness/config/section.h"

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "harness/config/toml_depth.h"
#include "harness/io/bytes.h"
#include "harness/io/mapped_file.h"
#include "harness/io/suggestion.h"
#include "harness/io/token_count.h"

namespace kv::config {
namespace {

std::string joined(const auto& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

// "file.toml:12", or "--set" for a value of the command line.
std::string place_of(const toml::node& node, const std::string& file) {
  const toml::source_region& from = node.source();
  if (from.path && *from.path == "--set") return *from.path;
  return from.begin.line > 0 ? file + ":" + std::to_string(from.begin.line) : file;
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

Section::Section(const toml::table& table, std::string file, std::string path)
    : table_(&table), file_(std::move(file)), path_(std::move(path)) {}

bool Section::has(const std::string& key) {
  asked_.insert(key);
  return table_->contains(key);
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
  if (!node) return fallback;
  if (!node->is_string()) fail(key, "must be text in quotes");
  return node->value<std::string>().value();
}

std::string Section::choice(const std::string& key, const std::string& fallback,
                            const std::vector<std::string>& known) {
  const std::string value = text(key, fallback);
  if (std::find(known.begin(), known.end(), value) == known.end())
    fail(key, "must be one of " + joined(known) + ", not '" + value + "'" + io::did_you_mean(value, known));
  return value;
}

int64_t Section::integer(const std::string& key, int64_t fallback, int64_t min, int64_t max) {
  const toml::node* node = take(key);
  return node ? checked(key, *node, min, max) : fallback;
}

int64_t Section::tokens(const std::string& key, int64_t fallback, int64_t min, int64_t max) {
  const toml::node* node = take(key);
  return node ? checked_tokens(key, *node, min, max) : fallback;
}

int64_t Section::bytes(const std::string& key, int64_t fallback, int64_t min, int64_t max) {
  const toml::node* node = take(key);
  if (!node) return fallback;
  if (!node->is_string()) fail(key, "must be a number of bytes with its unit, as \"4GiB\"");
  try {
    return in_range(key, io::parse_bytes(node->value<std::string>().value(), child(key)), min, max);
  } catch (const std::invalid_argument& e) {
    fail(key, std::string("is no number of bytes: ") + e.what());
  }
}

bool Section::boolean(const std::string& key, bool fallback) {
  const toml::node* node = take(key);
  if (!node) return fallback;
  if (!node->is_boolean()) fail(key, "must be true or false");
  return node->value<bool>().value();
}

double Section::number(const std::string& key, double fallback, double min, double max) {
  const toml::node* node = take(key);
  return node ? checked(key, *node, min, max) : fallback;
}

std::vector<double> Section::numbers(const std::string& key, const std::vector<double>& fallback, double min,
                                     double max) {
  std::vector<double> values;
  for (const toml::node* node : items(key)) values.push_back(checked(key, *node, min, max));
  return values.empty() ? fallback : values;
}

std::vector<int64_t> Section::integers(const std::string& key, const std::vector<int64_t>& fallback,
                                       int64_t min, int64_t max) {
  std::vector<int64_t> values;
  for (const toml::node* node : items(key)) values.push_back(checked(key, *node, min, max));
  return values.empty() ? fallback : values;
}

std::vector<int64_t> Section::token_list(const std::string& key, const std::vector<int64_t>& fallback,
                                         int64_t min, int64_t max) {
  std::vector<int64_t> values;
  for (const toml::node* node : items(key)) values.push_back(checked_tokens(key, *node, min, max));
  return values.empty() ? fallback : values;
}

std::vector<std::string> Section::texts(const std::string& key, const std::vector<std::string>& fallback) {
  std::vector<std::string> values;
  for (const toml::node* node : items(key)) {
    if (!node->is_string()) fail(key, "must be text in quotes, or an array of it");
    values.push_back(node->value<std::string>().value());
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
    if (!node->is_array()) fail(key, "must be an array of rows, as in [[128, \"0.67\"], [1024, \"5.37\"]]");
    std::vector<std::string>& row = rows.emplace_back();
    for (const toml::node& value : *node->as_array()) row.push_back(written(key, value));
    if (row.size() != columns) {
      fail(key, "has a row of " + std::to_string(row.size()) + " values" +
                    (row.empty() ? "" : ", which begins with '" + row.front() + "',") + " where there are " +
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
  return {node ? *node->as_table() : nothing, file_, child(key)};
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
  return {section(key)};
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
    if (!table.empty()) fail(name, "is not a key that is known here; it belongs in " + table);
    fail(name, "is not a key that is known here; known: " + joined(asked_) + io::did_you_mean(name, asked_));
  }
}

const toml::node* Section::take(const std::string& key) {
  asked_.insert(key);
  return table_->get(key);
}

std::vector<const toml::node*> Section::items(const std::string& key) {
  const toml::node* node = take(key);
  if (!node) return {};
  if (!node->is_array()) return {node};
  std::vector<const toml::node*> nodes;
  for (const toml::node& item : *node->as_array()) nodes.push_back(&item);
  if (nodes.empty()) fail(key, "is an empty axis; give it at least one value");
  return nodes;
}

double Section::checked(const std::string& key, const toml::node& node, double min, double max) const {
  const double value = node.value<double>().value_or(NAN);
  if (!(value >= min && value <= max))
    fail(key, "must be a number from " + std::to_string(min) + " to " + std::to_string(max));
  return value;
}

int64_t Section::checked(const std::string& key, const toml::node& node, int64_t min, int64_t max) const {
  if (!node.is_integer()) fail(key, "must be a whole number");
  return in_range(key, node.value<int64_t>().value(), min, max);
}

int64_t Section::checked_tokens(const std::string& key, const toml::node& node, int64_t min,
                                int64_t max) const {
  if (!node.is_string()) {
    if (!node.is_integer()) fail(key, "must be a whole number of tokens, as 131072 or \"128K\"");
    return checked(key, node, min, max);
  }
  const std::string text = node.value<std::string>().value();
  const std::optional<int64_t> value = io::parse_token_count(text);
  if (!value) fail(key, "must be a whole number of tokens, as 131072 or \"128K\", not '" + text + "'");
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
    fail(key, "must be text in quotes or a whole number, so that it stays as it was printed");
  return node.value<std::string>().value();
}

}  // namespace kv::config
