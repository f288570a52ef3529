// A full disk that a test can have.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace kv::test {

// No file of this process grows past so many bytes while this lives.
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
