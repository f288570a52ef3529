// What `kvlab list` shows: made from the registry, the config folder, the families and the metrics table.
#pragma once

#include <string>

namespace kv {

std::string listing();

}  // namespace kv
