// Limits the depth of TOML before parsing. TOML's parser makes a table of each part of a dotted key and frees tables
// by recursion: a key of 40,000 parts would overflow the stack.
#pragma once

#include <string>
#include <string_view>

namespace kv::config {

// Throws std::invalid_argument, beginning with `path` and the line, for a key of more than 16 parts and for brackets
// nested more than 64 deep. Leaves all other mistakes to the parser.
void refuse_deep_toml(std::string_view text, const std::string& path);

}  // namespace kv::config
