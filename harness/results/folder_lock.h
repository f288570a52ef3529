// Allows one writer a results folder.
#pragma once

#include <filesystem>

namespace kv::results {

// A lock on a folder. The system releases it however the program ends.
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
