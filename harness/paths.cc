#include "harness/paths.h"

#include <cstdlib>
#include <stdexcept>

#include "harness/version.h"

namespace kv {

std::filesystem::path project_home() {
  const char* home = std::getenv("KVLAB_HOME");
  return home && *home ? home : kSourceDir;
}

std::filesystem::path find_input(const std::string& path, const std::string& what) {
  std::error_code ignored;
  const std::filesystem::path inside = project_home() / path;  // `path` itself where that is absolute
  for (const std::filesystem::path& place : {std::filesystem::path(path), inside}) {
    if (std::filesystem::is_directory(place, ignored))
      throw std::invalid_argument(what + " '" + path + "' is a folder; a file is needed");
    if (std::filesystem::exists(place, ignored)) return place;
  }
  throw std::invalid_argument(what + " '" + path + "' does not exist, neither here nor in " +
                              project_home().string());
}

}  // namespace kv
