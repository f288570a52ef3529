// Runs timed tasks in interleaved random order, through Google Benchmark.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace kv::measure {

// One timed task. Each repetition is begin, `iterations` times run, end; only the seconds that run() returns count.
class TimedTask {
 public:
  virtual ~TimedTask() = default;
  virtual std::string name() const = 0;
  virtual int iterations() const = 0;
  virtual void begin(int repetition) = 0;
  virtual double run() = 0;  // seconds
  virtual void end() = 0;
  virtual bool goes_on() const { return true; }  // false: skips its remaining repetitions
  // Called while an exception of begin, run or end is handled. An exception from here ends all tasks.
  virtual void handle_exception() { throw; }
};

// Runs all repetitions of all tasks in random order. Asks `stop` between any two; true ends the run, and the function
// returns false. An exception that a task does not handle ends the run and is rethrown.
bool run_interleaved(std::span<const std::unique_ptr<TimedTask>> tasks, int repetitions,
                     const std::function<bool()>& stop);

class Stopwatch {
 public:
  // Seconds since the last call or construction.
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
