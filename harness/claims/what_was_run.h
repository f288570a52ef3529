// How a figure was checked, for readers who want to do it again: the expressions with what their names stand for,
// and the sweep configs that they need.
#pragma once

#include <string>

#include "harness/claims/claims.h"

namespace kv::claims {

// A line an expression and a name; empty where nothing is checked.
std::string how_checked(const Statement& statement);

// The runs of the file that the statement takes values from, as TOML.
std::string runs_of(const ClaimFile& file, const Statement& statement);

}  // namespace kv::claims
