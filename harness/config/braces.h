// Lists in braces: paged(block={1,8,16})/{f16,q8_0} stands for six variants.
//
// A brace with a comma is a list; any other is a placeholder and stays unchanged. Commas inside
// parentheses separate parameters, not items: {ring(window=64,sinks=4),full} has two items.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kv::config {

// Every combination, the last list's items varying fastest; the text itself if it has no list. Throws
// std::invalid_argument for nested or unbalanced braces and for empty items.
std::vector<std::string> expand_braces(const std::string& text);

// `{budget}`, {budget/N} or {budget-N}, N a whole number of at least 1: one line stands for a policy at every budget of
// the sweep. A fractional quotient is refused, not rounded, so that policies keep equally many tokens.
bool has_placeholder(std::string_view text);

// The text with every placeholder replaced by a number. Throws std::invalid_argument for other braces, a fractional
// quotient, or a number below 1.
std::string substitute_budget(std::string_view text, int64_t budget);

}  // namespace kv::config
