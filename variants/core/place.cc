#include "variants/core/place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "variants/core/memory.h"

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

NewFile::NewFile(const std::string& path) : path_(place_to_replace(path)), part_(path_ + ".part") {
  unlink(part_.c_str());
  fd_ = open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail();
}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(part_.c_str());
}

void NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail();
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void NewFile::commit() {
  // Pipes and some network file systems cannot sync and report EINVAL; the write is then as safe as it can be.
  if (fsync(fd_) != 0 && errno != EINVAL) fail();
  struct stat opened = {}, there = {};
  if (fstat(fd_, &opened) != 0 || stat(part_.c_str(), &there) != 0 || opened.st_ino != there.st_ino)
    throw DiskError("cannot write " + path_ + ": another process writes it");
  if (rename(part_.c_str(), path_.c_str()) != 0) fail();
  if (close(std::exchange(fd_, -1)) != 0) fail();
}

void NewFile::fail() const { throw DiskError("cannot write " + path_ + ": " + std::strerror(errno)); }

}  // namespace kv
