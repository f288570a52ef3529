// Measures how quiet the machine was during a sweep point, from /proc/stat and the times themselves.
//
// The A/A test misses a part of it: another tenant that slows every cell alike leaves ratios right and times wrong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/results/cell_columns.h"

namespace kv::measure {

// CPU time of all processors since the system started, in its ticks.
struct CpuTime {
  int64_t total = 0, idle = 0;  // idle: also waiting for a disk
  int64_t stolen = 0;           // given to another machine by the hypervisor
};
// Reads a file like /proc/stat; empty if there is none.
std::optional<CpuTime> cpu_time(const std::filesystem::path& stat);

// Shares of all processors' time since construction. Empty if the system does not report it.
class NoiseMeter {
 public:
  NoiseMeter();
  results::Number steal_share() const;
  results::Number others_share() const;  // used by other processes

 private:
  std::optional<CpuTime> start_;
  double own_seconds_;
};

// Time that this process's threads were ready to run and did not, because others had the processors. The scheduler
// counts it for every thread, as the second number of /proc/self/task/ID/schedstat.
class WaitMeter {
 public:
  // Counts the threads that are there now; a step makes none after the first.
  explicit WaitMeter(const std::filesystem::path& tasks = "/proc/self/task");
  ~WaitMeter();
  WaitMeter(const WaitMeter&) = delete;
  WaitMeter& operator=(const WaitMeter&) = delete;
  bool counts() const { return !files_.empty(); }  // false where the kernel does not
  // Seconds, all threads together, since each of them began; 0 where the kernel does not count.
  double seconds() const;

 private:
  std::vector<int> files_;
};

// Throws std::invalid_argument if the clock moves in steps too coarse for a step of a cache, as some virtual machines' do.
void require_fine_clock();

// Limits above which a cell's times are noisy.
inline constexpr double kMostStealShare = 0.02, kMostOthersShare = 0.10;
inline constexpr double kMostDisturbedShare = 0.10;  // of a cell's steps
inline constexpr double kWidestInterval = 1.5;       // upper end over lower end
inline constexpr double kMostCeilingShare = 1.05;    // cold reads above the ceiling: it was disturbed
inline constexpr double kMostHotShare = 1.02;        // above the hot roofline: it is none

// Names what disturbed a cell's times; empty for a quiet cell and for one without times.
std::string noise_of(const results::Row& row);

// True for an A/A test that found a difference: its interval leaves out 1.
bool differs_from_itself(const results::Row& row);

// Takes back the verdicts on times of a sweep point that are compared with a noisy baseline, or with one that differs from itself:
// they become kUnreliable, whatever an interval says. Readers call it for folders of earlier versions.
void withhold_verdicts(std::span<results::Row* const> point);

// Fills the noise columns of a sweep point's rows, and withholds verdicts. Returns true if the times of any row are noisy.
bool mark_noise(std::span<results::Row> rows, const NoiseMeter& meter);

}  // namespace kv::measure
