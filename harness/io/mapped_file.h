// A whole file, mapped read-only: weights are paged in as they are used and never copied.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace kv::io {

class MappedFile {
 public:
  // Throws std::invalid_argument with the path and the system's reason if it cannot be opened or is not a
  // regular file. If the file is truncated while it is mapped, reading beyond its end ends the program with exit
  // code 2 and a line that names the file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;  // empty for an empty file, which cannot be mapped
};

// All of a file. Throws as MappedFile does.
std::string read_text(const std::string& path);

}  // namespace kv::io
