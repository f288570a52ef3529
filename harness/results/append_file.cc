#include "harness/results/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "variants/core/memory.h"
#include "variants/core/place.h"

namespace kv::results {
namespace {

namespace fs = std::filesystem;

std::string system_reason() { return std::strerror(errno); }

}  // namespace

AppendFile::AppendFile(const fs::path& path) : path_(path) {
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) throw WriteError("cannot write " + path.string() + ": " + system_reason());
}

AppendFile::~AppendFile() { close(fd_); }

void AppendFile::append(const std::string& text) {
  const off_t before = lseek(fd_, 0, SEEK_END);
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const std::string reason = system_reason();
      if (ftruncate(fd_, before) != 0)
        throw WriteError("cannot write or restore " + path_.string() + ": " + reason);
      throw WriteError("cannot write " + path_.string() + ": " + reason);
    }
    done += static_cast<size_t>(n);
  }
}

void AppendFile::sync() {
  // Pipes and some network file systems cannot sync and report EINVAL; the write is then as safe as it can be.
  if (fsync(fd_) != 0 && errno != EINVAL)
    throw WriteError("cannot write " + path_.string() + ": " + system_reason());
  struct stat opened = {}, there = {};
  if (fstat(fd_, &opened) != 0 || stat(path_.c_str(), &there) != 0 || opened.st_ino != there.st_ino ||
      opened.st_dev != there.st_dev)
    throw WriteError(path_.string() + " was removed or replaced while it was written; what it held is lost");
}

void write_whole(const fs::path& path, const std::string& text) {
  try {
    NewFile file(path.string());
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  } catch (const DiskError& e) {
    throw WriteError(e.what());
  }
}

std::string read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace kv::results
