#include "variants/core/place.h"

#include <filesystem>
#include <stdexcept>

namespace kv {

namespace fs = std::filesystem;

std::string place_to_replace(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    throw std::invalid_argument("cannot write '" + path.substr(0, path.find('\0')) +
                                "\\0…': a path holds no NUL");
  std::error_code none;
  const fs::file_status status = fs::status(path, none);
  if (fs::exists(status) && !fs::is_regular_file(status))
    throw std::invalid_argument("cannot write '" + path +
                                "': it is a folder, a device or a pipe; give a file's path");
  fs::path place = path;
  for (int links = 0; links < 40 && fs::is_symlink(fs::symlink_status(place, none)); ++links)
    place = place.parent_path() / fs::read_symlink(place, none);  // an absolute one replaces the left side
  return place.string();
}

}  // namespace kv
