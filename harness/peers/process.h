// A peer at work: a Python process that holds another engine's cache, asked by a line of JSON and answering by one.
// Tensors go through memory that both have mapped.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace kv::peers {

// Whether the peer's Python has what its file needs.
bool is_installed(const std::string& peer);

// Floats that processes share; zero at first.
class SharedFloats {
 public:
  // Throws std::bad_alloc.
  explicit SharedFloats(int64_t count);
  ~SharedFloats();
  SharedFloats(const SharedFloats&) = delete;
  SharedFloats& operator=(const SharedFloats&) = delete;

  float* data() const { return data_; }
  int file() const { return file_; }

 private:
  int64_t bytes_;
  int file_ = -1;
  float* data_ = nullptr;
};

class Process {
 public:
  // Starts the peer, which waits for its first request; it sees the floats. Throws std::runtime_error.
  Process(const std::string& peer, const SharedFloats& floats, int threads, std::chrono::seconds patience);
  // Ends it with all that it started.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Its answer. Throws std::runtime_error with one line if the peer fails, ends, or takes longer than `patience`,
  // std::invalid_argument for what it says that it does not support, and std::bad_alloc where it has no memory.
  nlohmann::json ask(const nlohmann::json& request);

 private:
  std::string read_line();
  [[noreturn]] void fail(const std::string& what);
  std::string last_words() const;

  std::string peer_;
  std::chrono::seconds patience_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1, errors_ = -1;
  std::string read_;  // and not yet returned
};

}  // namespace kv::peers
