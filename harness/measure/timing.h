// Runs timed tasks in interleaved random order, through Google Benchmark.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace kv::measure {

// One thing that is timed. Each repetition is begin, `iterations` times run, end; only what run() reports
// counts.
class TimedTask {
 public:
  virtual ~TimedTask() = default;
  virtual std::string name() const = 0;
  virtual int iterations() const = 0;
  virtual void begin(int repetition) = 0;
  virtual double run() = 0;  // seconds
  virtual void end() = 0;
  virtual bool goes_on() const { return true; }  // false: its repetitions to come are left out
  // Called while an exception of begin, run or end is handled. What this throws ends all tasks.
  virtual void handle_exception() { throw; }
};

// All repetitions of all tasks, in random order. Between any two, `stop` is asked: true ends it early.
// Returns false if it was ended. An exception that a task does not handle ends it too, and is thrown again here.
bool run_interleaved(std::span<const std::unique_ptr<TimedTask>> tasks, int repetitions,
                     const std::function<bool()>& stop);

class Stopwatch {
 public:
  // Seconds since the last call, or since this was made.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace kv::measure
