// Shared by fuzz targets: the bytes as a file, since parsers read files, and refusals, which bad input must
// get. Anything else that is thrown ends the target, as a signal or a sanitizer's finding does.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace kv::fuzz {

class InputFile {
 public:
  // `ending`: of the file's name, as ".toml".
  explicit InputFile(const std::string& ending)
      : path_((std::filesystem::temp_directory_path() / ("kvlab-fuzz-" + std::to_string(getpid()) + ending))
                  .string()) {}
  ~InputFile() { unlink(path_.c_str()); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& bytes) const {
    unlink(path_.c_str());  // some file systems sync a file that is cut and written again
    std::ofstream(path_, std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

inline std::string bytes_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

template <class Parse>
void parse_or_refuse(Parse parse) {
  try {
    parse();
  } catch (const std::invalid_argument&) {
  }
}

}  // namespace kv::fuzz
