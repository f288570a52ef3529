// A running peer: a Python process with another engine's cache. Requests and answers are single lines of JSON; both
// processes map the tensors' memory.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace kv::peers {

// True if the peer's Python has the modules that its file needs.
bool is_installed(const std::string& peer);

// Floats in memory that processes share, initially zero.
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
  // Starts the peer, which maps the floats and waits for requests. Throws std::runtime_error.
  Process(const std::string& peer, const SharedFloats& floats, int threads, std::chrono::seconds patience);
  // Ends the peer and its child processes.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Returns the answer. Throws std::runtime_error with one line if the peer fails, ends, or takes longer than
  // `patience`; std::invalid_argument if it does not support the request; std::bad_alloc if it lacks memory.
  nlohmann::json ask(const nlohmann::json& request);

 private:
  std::string read_line();
  [[noreturn]] void fail(const std::string& what);
  std::string last_words() const;

  std::string peer_;
  std::chrono::seconds patience_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1, errors_ = -1;
  std::string read_;  // not returned yet
};

}  // namespace kv::peers
