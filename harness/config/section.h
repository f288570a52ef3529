// A TOML table with its place: every error names file, line and key, and a key that nobody reads is an error.
#pragma once

#include <toml++/impl/forward_declarations.h>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kv::config {

// Throws std::invalid_argument with file and line if the text is not TOML, or nested too deeply.
toml::table parse_toml_file(const std::string& path);
// `path`: of the text, for messages.
toml::table parse_toml(std::string_view text, const std::string& path);

// Reads keys. Every reading function throws std::invalid_argument for a value of another kind, with the correction.
class Section {
 public:
  // `schema`: not null to describe keys: what is asked for is noted there as a JSON schema. The table is then empty.
  Section(const toml::table& table, std::string file, std::string path, nlohmann::json* schema = nullptr);

  bool has(const std::string& key);
  bool is_array(const std::string& key) const;
  // Notes a key's meaning, where keys are described.
  void explain(std::string_view key, std::string_view help);

  // `what` follows the key, as in "must be text in quotes".
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;
  // Refuses the table as a whole.
  [[noreturn]] void refuse(const std::string& what) const;

  std::string text(const std::string& key, const std::string& fallback);
  std::string choice(const std::string& key, const std::string& fallback,
                     const std::vector<std::string>& known);
  int64_t integer(const std::string& key, int64_t fallback, int64_t min, int64_t max);
  // A number of tokens: 131072 or "128K".
  int64_t tokens(const std::string& key, int64_t fallback, int64_t min, int64_t max);
  // A number of bytes with its unit: "4GiB".
  int64_t bytes(const std::string& key, int64_t fallback, int64_t min, int64_t max);
  bool boolean(const std::string& key, bool fallback);
  double number(const std::string& key, double fallback, double min, double max);
  std::vector<double> numbers(const std::string& key, const std::vector<double>& fallback, double min,
                              double max);

  // One value or an array of them; never empty.
  std::vector<int64_t> integers(const std::string& key, const std::vector<int64_t>& fallback, int64_t min,
                                int64_t max);
  std::vector<int64_t> token_list(const std::string& key, const std::vector<int64_t>& fallback, int64_t min,
                                  int64_t max);
  // `known`: the texts allowed; empty: any.
  std::vector<std::string> texts(const std::string& key, const std::vector<std::string>& fallback,
                                 const std::vector<std::string>& known = {});

  // Text, or a whole number as text. Other numbers are refused: reading them would lose digits.
  std::string verbatim(const std::string& key, const std::string& fallback);
  // Rows of `columns` such values.
  std::vector<std::vector<std::string>> verbatim_rows(const std::string& key, size_t columns);
  // Every key of this table with its value, read verbatim.
  std::map<std::string, std::string> all_verbatim();

  // The table under a key, or an empty one.
  Section section(const std::string& key);
  // [[key]]: one section each, named by its `id` if it has one.
  std::vector<Section> sections(const std::string& key);
  // [key] or [[key]] at the top: at least one section, which may be empty.
  std::vector<Section> section_or_sections(const std::string& key);
  // Every nested table, by its key.
  std::map<std::string, Section> subsections();

  // Keys that nobody has read.
  std::vector<std::string> unread() const;
  // Call after all keys have been read. `table_of` names the table that a key belongs in, if any.
  void refuse_the_rest(const std::function<std::string(std::string_view key)>& table_of = nullptr) const;

  const toml::table& table() const { return *table_; }
  // "file.toml:12: claim.name", for later messages.
  std::string place() const;

 private:
  std::string child(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  const toml::node* take(const std::string& key);
  std::vector<const toml::node*> items(const std::string& key);
  double checked(const std::string& key, const toml::node& node, double min, double max) const;
  int64_t checked(const std::string& key, const toml::node& node, int64_t min, int64_t max) const;
  int64_t checked_tokens(const std::string& key, const toml::node& node, int64_t min, int64_t max) const;
  int64_t in_range(const std::string& key, int64_t value, int64_t min, int64_t max) const;
  std::string written(const std::string& key, const toml::node& node) const;
  void note(const std::string& key, const nlohmann::json& values);

  const toml::table* table_;
  std::string file_, path_;
  std::set<std::string> asked_;
  nlohmann::json* schema_;
};

// Limits the depth of TOML before parsing, whose parser makes a table of each part of a dotted key and frees tables by
// recursion: a key of 40,000 parts would overflow the stack.
// Throws std::invalid_argument, beginning with `path` and the line, for a key of more than 16 parts and for brackets
// nested more than 64 deep. Leaves all other mistakes to the parser.
void refuse_deep_toml(std::string_view text, const std::string& path);

}  // namespace kv::config
