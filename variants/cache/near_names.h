// Suggestions for an unknown name of a variant, a model or a claim.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

// At most three of `names`, the nearest first; none where none is near. Near are those that a few changed letters
// make of the wrong one, whatever its case, and those that contain it or begin it.
std::vector<std::string_view> near_names(std::string_view wrong, std::span<const std::string_view> names);

// "; did you mean 'a' or 'b'?", or nothing.
std::string did_you_mean(std::string_view wrong, std::span<const std::string_view> names);

// "; did you mean 'b'? Known: a, b, c", or "; known: a, b, c" where none is near. Five stand for more than eight.
std::string known_names(std::string_view wrong, std::span<const std::string_view> names);

}  // namespace kv
