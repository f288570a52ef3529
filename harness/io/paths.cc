#include "harness/io/paths.h"

#include <cstdlib>
#include <stdexcept>

#include "harness/io/suggestion.h"
#include "harness/version.h"

namespace kv::io {

std::filesystem::path project_home() {
  const char* home = std::getenv("KVLAB_HOME");
  return home && *home ? home : kSourceDir;
}

namespace {

// Files beside the missing one, here and in the project; for a bare name, the project's configs as well.
std::set<std::string> names_beside(const std::filesystem::path& path) {
  constexpr size_t kMost = 10000;
  std::set<std::string> names;
  const auto add = [&](const std::filesystem::path& folder, const std::filesystem::path& shown) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (names.size() < kMost) names.insert((shown / entry.path().filename()).string());
    }
  };
  const std::filesystem::path parent = path.parent_path();
  add(parent.empty() ? "." : parent, parent);
  add(project_home() / parent, parent);
  return names;
}

// "; did you mean 'configs/quickstart.toml'?", also for a config named `quickstart` or `quickstart.toml`.
std::string nearest_file(const std::filesystem::path& path, const std::string& what) {
  const std::string beside = did_you_mean(path.string(), names_beside(path));
  const bool is_config = what != "model" && (!path.has_extension() || path.extension() == ".toml");
  if (!beside.empty() || path.has_parent_path() || !is_config) return beside;
  const std::string name = path.stem().string() + ".toml";
  return did_you_mean("configs/" + name, names_beside("configs/" + name));
}

}  // namespace

std::filesystem::path find_place(const std::string& path, const std::string& what,
                                 const std::set<std::string>& names) {
  const std::filesystem::path inside = project_home() / path;  // `path` itself if that is absolute
  std::error_code ignored;
  for (const std::filesystem::path& place : {std::filesystem::path(path), inside}) {
    if (std::filesystem::exists(place, ignored)) return place;
  }
  if (names.contains(path)) return path;
  const std::string name = did_you_mean(path, names);
  throw std::invalid_argument(what + " '" + path + "' does not exist, neither here nor in " +
                              project_home().string() + (name.empty() ? nearest_file(path, what) : name));
}

std::filesystem::path find_input(const std::string& path, const std::string& what) {
  const std::filesystem::path place = find_place(path, what);
  std::error_code ignored;
  if (std::filesystem::is_directory(place, ignored))
    throw std::invalid_argument(what + " '" + path + "' is a folder; a file is needed");
  return place;
}

bool is_token_file(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension();
  return extension == ".npy" || extension == ".u16" || extension == ".u32";
}

}  // namespace kv::io
