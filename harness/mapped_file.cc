// POSIX mmap behind MappedFile.
#include "harness/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace kv {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw std::invalid_argument("cannot read " + path + ": " + reason);
}

std::string system_reason() { return std::generic_category().message(errno); }

// The mapping outlives the descriptor, so the descriptor is only held while it is being made.
struct Descriptor {
  explicit Descriptor(const std::string& path) : number(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (number < 0) refuse(path, system_reason());
  }
  ~Descriptor() { close(number); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(path);
  struct stat status = {};
  if (fstat(file.number, &status) != 0) refuse(path, system_reason());
  if (!S_ISREG(status.st_mode)) refuse(path, "not a regular file");
  if (status.st_size == 0) return;
  const size_t size = static_cast<size_t>(status.st_size);
  void* start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (start == MAP_FAILED) refuse(path, system_reason());
  bytes_ = {static_cast<const std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace kv
