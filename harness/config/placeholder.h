// `{budget}` in a variant of a config: one line of it stands for a policy at every budget of the sweep.
//
// Three forms: {budget}, {budget/N} and {budget-N}, with N a whole number of at least 1. So that policies
// keep equally many tokens, a quotient that is not whole is refused rather than rounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kv::config {

bool has_placeholder(std::string_view text);

// The text with every placeholder as a number. Throws std::invalid_argument for braces that hold anything
// else, for a quotient that is not whole, and for a number below 1.
std::string substitute_budget(std::string_view text, int64_t budget);

}  // namespace kv::config
