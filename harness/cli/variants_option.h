// What `--variants` takes.
#pragma once

#include <string>
#include <vector>

#include "variants/cache/spec.h"

namespace kv::cli {

// Specs, separated by ';', with lists in braces (config/braces.h). Throws std::invalid_argument for none, and for one that is there twice.
std::vector<Spec> parse_variants(const std::string& text);

}  // namespace kv::cli
