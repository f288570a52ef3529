// Files that are never left half written.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace kv::results {

// A failed write: path and the system's reason.
struct WriteError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Text that only grows, by whole lines: a partial write is undone.
class AppendFile {
 public:
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  // Both throw WriteError; sync() also where the file is no longer there.
  void append(const std::string& text);
  void sync();

 private:
  std::filesystem::path path_;
  int fd_;
};

// A NewFile with this text.
void write_whole(const std::filesystem::path& path, const std::string& text);

// The whole file; empty if it does not exist.
std::string read_whole(const std::filesystem::path& path);

}  // namespace kv::results
