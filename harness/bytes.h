// Byte counts as people read them. Binary units only, and always named as such.
#pragma once

#include <cstdint>
#include <string>

namespace kv {

// "512 B", "1.5 KiB", "16.0 GiB".
std::string human_bytes(int64_t bytes);

}  // namespace kv
