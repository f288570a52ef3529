// Files that are never left half written.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace kv::results {

// Results that cannot be kept: path and the system's reason.
struct WriteError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Text that only grows, and never by half a line: what could not be written whole is taken back.
class AppendFile {
 public:
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  // Both throw WriteError.
  void append(const std::string& text);
  void sync();

 private:
  std::filesystem::path path_;
  int fd_;
};

// Written under another name, synced, and renamed.
void write_whole(const std::filesystem::path& path, const std::string& text);

// All of a file; empty where there is none.
std::string read_whole(const std::filesystem::path& path);

}  // namespace kv::results
