// A whole file mapped read-only, unmapped when the object dies.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace kv {

class MappedFile {
 public:
  // Throws std::invalid_argument: one line with the path and the system's reason. An empty file gives no
  // bytes.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace kv
