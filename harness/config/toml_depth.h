// TOML's own parser makes a table of each part of a dotted key, and a table is printed and freed by recursion: a key of
// 40,000 parts would overflow the stack. So depth is looked at before the text is parsed.
#pragma once

#include <string>
#include <string_view>

namespace kv::config {

// Throws std::invalid_argument, which begins with `path` and the line, for a key of more than 16 parts, and for brackets in
// more than 64 others. Leaves all other mistakes to the parser.
void refuse_deep_toml(std::string_view text, const std::string& path);

}  // namespace kv::config
