// Reads JSON of others within bounds, and writes ours whatever its texts hold.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kv::io {

// Reads JSON, and the Infinity, -Infinity and NaN that Python writes, which become texts: a key that needs a number refuses them.
// Throws std::invalid_argument, which begins with `place` and says line and column, if the text is no JSON, or is nested so
// deep that copying, comparing and printing it would overflow the stack. `is_line`: the text is the line that `place` names.
nlohmann::json parse_json(std::string_view text, const std::string& place, bool is_line = false);

// A file's value; null if there is no such file. Throws as parse_json() does, with the path for its place.
nlohmann::json read_json(const std::filesystem::path& path);

// The object in a file. Throws std::invalid_argument where there is none, and says that `expected` is needed.
nlohmann::json read_json_object(const std::string& path, const std::string& expected);

// The text at a pointer, as "/config/hash"; empty where there is none, or something else.
std::string text_at(const nlohmann::json& object, const char* pointer);

// nlohmann's own dump() throws at a text that is not UTF-8, as a file's name need not be: such bytes become U+FFFD.
std::string json_text(const nlohmann::json& value, int indent = -1);

// A value for a message.
std::string shown(const nlohmann::json& value);

// True if a key or a tensor of this name changes no logits. `kind` is one of the table's, as "tensors"; `type` is a model_type, for
// which alone some keys mean nothing.
bool changes_nothing(const std::string& kind, const std::string& name, const std::string& type = "");

}  // namespace kv::io
