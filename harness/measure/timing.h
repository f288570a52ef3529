// Runs timed tasks in interleaved random order, through Google Benchmark. A repetition in which other processes held this
// one's threads up is taken again.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace kv::measure {

// One timed task. Each repetition is begin, `iterations` times run, end; only the seconds that run() returns count.
class TimedTask {
 public:
  virtual ~TimedTask() = default;
  virtual int iterations() const = 0;
  virtual void begin(int repetition) = 0;
  virtual double run() = 0;  // seconds
  virtual void end() = 0;
  virtual bool is_active() const { return true; }  // false: skips its remaining repetitions
  // Called while an exception of begin, run or end is handled. An exception from here ends all tasks.
  virtual void handle_exception() { throw; }

  // Ends a repetition that does not count, in place of end(). False if the task cannot begin it again; then end() follows.
  virtual bool discard() { return false; }
  // Called after end(): how often the repetition was discarded, and the share of its runs that were disturbed even so;
  // empty where the kernel does not say.
  virtual void record_disturbance(int /*discarded*/, std::optional<double> /*share*/) {}
};

// A run is disturbed if this process's threads waited for a processor for this share of its time.
inline constexpr double kDisturbedRun = 0.02;
// A repetition is discarded if a larger share of its runs is disturbed: less and less strictly, so that it ends even on a
// machine that is never quiet. Its times do not decide, so what remains is no selection of fast ones.
inline constexpr double kMostDisturbed[] = {0.1, 0.1, 0.2, 0.3, 0.5};
// Repetitions that a task may discard for each one that counts, so that beside a neighbour who never rests it lasts three times
// as long at most.
inline constexpr int kDiscardsForEach = 2;

// Runs all repetitions of all tasks in random order. Asks `stop` between any two; true ends the run, and the function
// returns false. An exception that a task does not handle ends the run and is rethrown.
using TimedTasks = std::vector<std::unique_ptr<TimedTask>>;
bool run_interleaved(const TimedTasks& tasks, int repetitions, const std::function<bool()>& stop);

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
