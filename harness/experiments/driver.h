// Runs a config. For every cell it verifies, then times, then records.
//
// The caches of one sweep point are alive together. Their repetitions are interleaved in random order with each other
// and with the loops that measure read bandwidth, so that drift of the machine affects all alike.
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
  Shard shard = {};                                   // by default all of the sweep's points
  std::function<bool()> stop;                         // called between repetitions; true ends the run early
  std::function<void(const std::string& line)> note;  // prints a line on the terminal
  std::function<void(int done, int total, const std::string& what, double weight_done, double weight_total)>
      progress;
};

struct RunOutcome {
  bool finished = false;
  std::vector<results::Row> cells;  // all cells of the folder
};

// Throws std::invalid_argument for a mistake that the user can fix, std::runtime_error if the disk refuses.
RunOutcome run_config(const config::Config& config, const RunOptions& options);

}  // namespace kv::experiments
