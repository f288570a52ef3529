// Reads JSON of others within bounds, and writes ours whatever its texts hold.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kv::io {

// Returns a discarded value (nlohmann's word) if the text is no JSON. Throws std::invalid_argument, which begins with `place`, if it
// is nested so deep that copying, comparing and printing it would overflow the stack.
nlohmann::json parse_json(std::string_view text, const std::string& place);

// nlohmann's own dump() throws at a text that is not UTF-8, as a file's name need not be: such bytes become U+FFFD.
std::string json_text(const nlohmann::json& value, int indent = -1);

// A value for a message.
std::string shown(const nlohmann::json& value);

}  // namespace kv::io
