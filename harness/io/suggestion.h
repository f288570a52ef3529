// Suggestions for mistyped names of any kind of list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "variants/cache/near_names.h"

namespace kv::io {

// "; did you mean 'concat'?", or nothing where no name is near.
template <class Names>
std::string did_you_mean(std::string_view wrong, const Names& names) {
  const std::vector<std::string_view> views(std::begin(names), std::end(names));
  return kv::did_you_mean(wrong, views);
}

// The same with the known names (variants/cache/near_names.h).
template <class Names>
std::string known_names(std::string_view wrong, const Names& names) {
  const std::vector<std::string_view> views(std::begin(names), std::end(names));
  return kv::known_names(wrong, views);
}

}  // namespace kv::io
