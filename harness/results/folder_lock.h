// One writer a results folder.
#pragma once

#include <filesystem>

namespace kv::results {

// One program at a time writes to a folder. The system gives the lock back when a program ends, however it
// does.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace kv::results
