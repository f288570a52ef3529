// Runs a config: for every cell verify, then time, then record.
//
// Cells at one point of the sweep (the variants) form a block. A block's caches live side by side and their
// repetitions are interleaved in random order, with the read ceilings among them, so that what drifts on the
// machine hits all alike.
#pragma once

#include <filesystem>
#include <functional>

#include "harness/config.h"
#include "harness/results.h"

namespace kv {

struct RunOptions {
  std::filesystem::path out;
  bool resume = false;
  std::function<bool()> stop;                         // asked between repetitions; true ends the run early
  std::function<void(const std::string& line)> note;  // what a reader of the terminal should know
  std::function<void(int done, int total, const std::string& what, double weight_done, double weight_total)>
      progress;
};

struct RunOutcome {
  bool finished = false;
  std::vector<Row> cells;  // all of the folder's
};

// Throws std::invalid_argument for what the user can mend, std::runtime_error where the disk refuses.
RunOutcome run_config(const Config& config, const RunOptions& options);

}  // namespace kv
