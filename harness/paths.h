// Where the project's own files are.
#pragma once

#include <filesystem>
#include <string>

namespace kv {

// The project folder: $KVLAB_HOME, which the launcher sets, else the folder this program was built from.
std::filesystem::path project_home();

// `path` as given if it exists, else inside the project folder. Throws std::invalid_argument if it is in
// neither.
std::filesystem::path find_input(const std::string& path, const std::string& what);

// The same for a model, which may be a folder.
std::filesystem::path find_model(const std::string& path);

}  // namespace kv
