#include "harness/results/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

namespace kv::results {

FolderLock::FolderLock(const std::filesystem::path& path)
    : fd_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  // Some network file systems have no locks; folders there stay unlocked.
  if (fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(fd_);
    throw std::invalid_argument("another kvlab is writing to " + path.string());
  }
  // The lock's earlier holder may have removed the folder opened here.
  struct stat opened = {}, there = {};
  if (fd_ >= 0 && fstat(fd_, &opened) == 0 && stat(path.c_str(), &there) == 0 &&
      opened.st_ino == there.st_ino && opened.st_dev == there.st_dev)
    return;
  if (fd_ >= 0) close(fd_);
  throw std::invalid_argument("another kvlab has removed " + path.string() + "; start again");
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace kv::results
