// How quiet the machine was while a sweep point was measured, from /proc/stat and the times themselves.
//
// The A/A test does not see all of it: a neighbour that slows down every cell alike leaves its ratios as they are, and
// its times wrong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "harness/results/cell_columns.h"

namespace kv::measure {

// CPU time of all processors since the system started, in its ticks.
struct CpuTime {
  int64_t total = 0, idle = 0;  // idle or waiting for a disk
  int64_t stolen = 0;           // the hypervisor gave it to another machine
};
// Of a file like /proc/stat; empty where there is none.
std::optional<CpuTime> cpu_time(const std::filesystem::path& stat);

// Shares of all processors' time, from construction on. Empty where the system does not say.
class NoiseMeter {
 public:
  NoiseMeter();
  results::Number steal_share() const;
  results::Number others_share() const;  // of other processes

 private:
  std::optional<CpuTime> start_;
  double own_seconds_;
};

// Above these a cell's times are noisy.
inline constexpr double kMostStealShare = 0.02, kMostOthersShare = 0.10;
inline constexpr double kWidestInterval = 1.5;     // its upper end over its lower
inline constexpr double kMostCeilingShare = 1.05;  // cold reads faster than memory: the ceiling was disturbed

// What disturbed a cell's times; empty for a quiet one, and for one without times.
std::string noise_of(const results::Row& row);

// Fills the rows' columns on noise. True if the times of any row are noisy.
bool mark_noise(std::span<results::Row> rows, const NoiseMeter& meter);

}  // namespace kv::measure
