// The places of files that are written under another name and renamed.
#pragma once

#include <string>

namespace kv {

// `path`, or behind a link the path of its target, which the new file then replaces. Throws std::invalid_argument for a
// path with a NUL, at which the system would cut it, and for what is no regular file, as a device: renaming would put a file in
// its place.
std::string place_to_replace(const std::string& path);

}  // namespace kv
