// Runs a config: for every cell verify, then time, then record.
//
// The caches of one sweep point live side by side and their repetitions are interleaved in random order, with
// the loops that measure read bandwidth among them, so that what drifts on the machine hits all alike.
#pragma once

#include <filesystem>
#include <functional>

#include "harness/config/config.h"
#include "harness/experiments/shard.h"
#include "harness/results/results_folder.h"

namespace kv::experiments {

struct RunOptions {
  std::filesystem::path out;
  bool resume = false;
  Shard shard = {};                                   // of the sweep's points; all
  std::function<bool()> stop;                         // asked between repetitions; true ends the run early
  std::function<void(const std::string& line)> note;  // what a reader of the terminal should know
  std::function<void(int done, int total, const std::string& what, double weight_done, double weight_total)>
      progress;
};

struct RunOutcome {
  bool finished = false;
  std::vector<results::Row> cells;  // all of the folder's
};

// Throws std::invalid_argument for what the user can fix, std::runtime_error where the disk refuses.
RunOutcome run_config(const config::Config& config, const RunOptions& options);

}  // namespace kv::experiments
