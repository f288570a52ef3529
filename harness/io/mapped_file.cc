#include "harness/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <stdexcept>

namespace kv::io {
namespace {

[[noreturn]] void fail(const std::string& path, const char* reason) {
  throw std::invalid_argument("cannot read " + path + ": " + reason);
}

// Mapped files, for the handler of the signal that the system sends when one was truncated. A slot is free if its begin is null;
// a file that finds no free slot is not named.
struct Mapping {
  std::atomic<const std::byte*> begin = nullptr;
  std::atomic<const std::byte*> end = nullptr;
  char path[512] = "";
};
std::array<Mapping, 256> g_mappings;

void write_error(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

// Calls only what a signal handler may call.
void end_at_lost_file(int signal, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  for (const Mapping& mapping : g_mappings) {
    if (!mapping.begin || at < mapping.begin || at >= mapping.end) continue;
    write_error("kvlab: ");
    write_error(mapping.path);
    write_error(" was cut off or cannot be read any longer; finished measurements are kept\n");
    _exit(2);
  }
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void watch(const std::byte* begin, size_t size, const std::string& path) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  struct sigaction action = {};
  action.sa_sigaction = end_at_lost_file;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
  for (Mapping& mapping : g_mappings) {
    if (mapping.begin) continue;
    path.copy(mapping.path, sizeof mapping.path - 1);
    mapping.path[std::min(path.size(), sizeof mapping.path - 1)] = '\0';
    mapping.end = begin + size;
    mapping.begin = begin;
    return;
  }
}

void forget(const std::byte* begin) {
  for (Mapping& mapping : g_mappings) {
    if (mapping.begin == begin) mapping.begin = nullptr;
  }
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a pipe that nobody writes must be refused, not waited for.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(path, std::strerror(errno));
  struct stat status;
  if (fstat(file.fd, &status) != 0) fail(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(path, "it is not a regular file");
  if (status.st_size == 0) return;
  const size_t size = static_cast<size_t>(status.st_size);
  void* map = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (map == MAP_FAILED) fail(path, std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(map), size};
  watch(bytes_.data(), size, path);
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  forget(bytes_.data());
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::string read_text(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace kv::io
