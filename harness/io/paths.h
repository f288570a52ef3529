// Paths of the project's own files.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace kv::io {

// The project folder: $KVLAB_HOME, which the launcher sets, else the folder this program was built from.
std::filesystem::path project_home();

// `path` as given if it exists, else inside the project folder. Throws std::invalid_argument if it is in
// neither.
std::filesystem::path find_input(const std::string& path, const std::string& what);

// The same for what may be a folder. `names` may stand for no path, and are suggested for a mistyped one.
std::filesystem::path find_place(const std::string& path, const std::string& what,
                                 const std::set<std::string>& names = {});

// True if a path names token ids rather than text: .npy (a 1-D array of u16, u32, i32 or i64), or .u16 or
// .u32 (the little-endian numbers alone).
bool is_token_file(const std::string& path);

}  // namespace kv::io
