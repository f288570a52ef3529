// Files and folders that are removed when their objects are.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

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

}  // namespace kv::test
