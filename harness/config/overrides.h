// Command-line overrides of a config before it is read. Options become keys of the TOML, so that the config as run
// holds everything that was asked for.
#pragma once

#include <toml++/impl/forward_declarations.h>

#include <string>

#include "harness/config/config.h"

namespace kv::config {

// `name`: for a config without one. Throws std::invalid_argument for an option that fits nowhere.
void apply_overrides(toml::table& root, const Overrides& overrides, const std::string& name,
                     const Catalog& catalog);

}  // namespace kv::config
