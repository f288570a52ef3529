// A Python process that works for this one, as a peer with another engine's cache does. Requests and answers are single
// lines of JSON; both processes map the tensors' memory.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

  // Grows to so many, of which all are lost then. Throws std::bad_alloc.
  void reserve(int64_t count);

  float* data() const { return data_; }
  int file() const { return file_; }

 private:
  void map(int64_t count);

  int64_t bytes_ = 0;
  int file_ = -1;
  float* data_ = nullptr;
};

// A child's command line, its name in messages, and the setting that lengthens the patience, if there is one.
struct Command {
  std::vector<std::string> words;
  std::string who, setting;
};
// The command of a peer that serves.
Command serving(const std::string& peer);

class Process {
 public:
  // Starts the command, which maps the shared file as its file 3 and waits for requests. Throws std::runtime_error.
  Process(const Command& command, int shared, int threads, std::chrono::seconds patience);
  // Ends the command and its child processes.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Returns the answer. Throws std::runtime_error with one line if the process fails, ends, or takes longer than
  // `patience`; std::invalid_argument if it does not support the request; std::bad_alloc if it lacks memory.
  nlohmann::json ask(const nlohmann::json& request);
  // It did not answer, or not as it should, and answers no more.
  bool has_ended() const { return has_ended_; }

 private:
  std::string read_line();
  [[noreturn]] void fail(const std::string& what);
  std::string last_words() const;

  std::string who_, setting_;
  std::chrono::seconds patience_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1, errors_ = -1;
  std::string read_;  // not returned yet
  bool has_ended_ = false;
};

}  // namespace kv::peers
