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
  if (std::filesystem::exists(path, ignored)) return path;
  const std::filesystem::path inside = project_home() / path;
  if (std::filesystem::path(path).is_relative() && std::filesystem::exists(inside, ignored)) return inside;
  throw std::invalid_argument(what + " '" + path + "' does not exist, neither here nor in " +
                              project_home().string());
}

}  // namespace kv
