// The places of files that are written under another name and renamed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace kv {

// `path`, or behind a link the path of its target, which the new file then replaces. Throws std::invalid_argument for a
// path with a NUL, at which the system would cut it, and for what is no regular file, as a device: renaming would put a file in
// its place.
std::string place_to_replace(const std::string& path);

// A new file beside its place, under its name and ".part", until commit() syncs and renames it. One that is not committed is gone
// again; a killed process's, with the next one. Throws as place_to_replace(), and DiskError with the system's reason.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail() const;

  std::string path_, part_;
  int fd_;
};

}  // namespace kv
