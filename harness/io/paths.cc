#include "harness/io/paths.h"

#include <cstdlib>
#include <stdexcept>

#include "harness/version.h"

namespace kv::io {

std::filesystem::path project_home() {
  const char* home = std::getenv("KVLAB_HOME");
  return home && *home ? home : kSourceDir;
}

namespace {

std::filesystem::path find(const std::string& path, const std::string& what) {
  const std::filesystem::path inside = project_home() / path;  // `path` itself where that is absolute
  std::error_code ignored;
  for (const std::filesystem::path& place : {std::filesystem::path(path), inside}) {
    if (std::filesystem::exists(place, ignored)) return place;
  }
  throw std::invalid_argument(what + " '" + path + "' does not exist, neither here nor in " +
                              project_home().string());
}

}  // namespace

std::filesystem::path find_input(const std::string& path, const std::string& what) {
  const std::filesystem::path place = find(path, what);
  std::error_code ignored;
  if (std::filesystem::is_directory(place, ignored))
    throw std::invalid_argument(what + " '" + path + "' is a folder; a file is needed");
  return place;
}

std::filesystem::path find_model(const std::string& path) { return find(path, "model"); }

bool is_token_file(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension();
  return extension == ".npy" || extension == ".u16" || extension == ".u32";
}

}  // namespace kv::io
