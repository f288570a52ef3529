// Lists in braces: paged(block={1,8,16})/{f16,q8_0} stands for six variants.
//
// A brace with a comma is a list; any other is a placeholder (placeholder.h) and stays unchanged. Commas inside
// parentheses separate parameters, not items: {ring(window=64,sinks=4),full} has two items.
#pragma once

#include <string>
#include <vector>

namespace kv::config {

// Every combination, the last list's items varying fastest; the text itself if it has no list. Throws
// std::invalid_argument for nested or unbalanced braces and for empty items.
std::vector<std::string> expand_braces(const std::string& text);

}  // namespace kv::config
