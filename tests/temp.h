// Files and folders that are removed when their objects are, and a full disk.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

namespace kv::test {

inline std::filesystem::path temp_path() {
  static int count = 0;
  return std::filesystem::path(testing::TempDir()) /
         ("kvlab_" + std::to_string(getpid()) + "_" + std::to_string(count++));
}

class TempFolder {
 public:
  TempFolder() { std::filesystem::create_directories(path_); }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path path_ = temp_path();
};

class TempFile {
 public:
  explicit TempFile(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  ~TempFile() { std::filesystem::remove(path_); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_ = temp_path().string();
};

// A disk that is full: no file of this process grows past so many bytes while this lives.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : ignored_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit little{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &little);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, ignored_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*ignored_)(int);
};

}  // namespace kv::test
