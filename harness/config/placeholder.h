// `{budget}` in a variant of a config: one line stands for a policy at every budget of the sweep.
//
// Three forms: {budget}, {budget/N} and {budget-N}, with N a whole number of at least 1. A fractional quotient is
// refused, not rounded, so that policies keep equally many tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kv::config {

bool has_placeholder(std::string_view text);

// The text with every placeholder replaced by a number. Throws std::invalid_argument for other braces, a fractional
// quotient, or a number below 1.
std::string substitute_budget(std::string_view text, int64_t budget);

}  // namespace kv::config
