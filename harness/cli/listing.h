// The output of `kvlab list`, made from the registry, the config folder, the families and the metrics table.
#pragma once

#include <string>

namespace kv::cli {

std::string listing();

// `kvlab list columns`: name, unit and meaning of every column of a results folder.
std::string columns_listing();

}  // namespace kv::cli
