// `kvlab list`, from the registry, the config folder, the families and the metrics table.
#pragma once

#include <string>

namespace kv::cli {

// `json`: the same as JSON (fields: harness/README.md).
std::string listing(bool json);

// `kvlab list columns`: name, unit and meaning of every column of a results folder, from its declaration.
std::string columns_listing(bool json);

}  // namespace kv::cli
