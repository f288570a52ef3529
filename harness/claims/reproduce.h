// Runs what claims need, checks every figure, and writes the verdicts.
//
//   claims.csv    one row a figure; plots/claims.py makes report.html, claims.md and summary.md of it
//   runs/NAME/    results folders of the runs, with their configs
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "harness/claims/claims.h"
#include "harness/claims/figure_result.h"
#include "harness/experiments/driver.h"

namespace kv::claims {

struct ReproduceOptions {
  std::filesystem::path out;
  bool quick = false;                         // only figures whose verdict does not depend on the machine
  bool tables = false;                        // only figures of the sources' tables
  int threads = 0;                            // 0: one a core
  config::WorkloadConfig workload = {};       // a model, tokenizer and texts in place of those that runs read
  int64_t measured_up_to = int64_t{1} << 30;  // bytes of the largest cache that is filled and counted
  std::function<bool()> stop;
  std::function<void(const std::string& line)> note;
  // The progress of one run of the driver.
  std::function<decltype(experiments::RunOptions::progress)(const std::string& run)> progress;
};

struct Reproduction {
  bool finished = false;
  bool any_failed = false;  // a cell failed its verification
  std::vector<FigureResult> figures;
};

// Runs of synthetic rows keep what they have. Throws std::invalid_argument for a mistake that the user can fix, as a model in
// place of none, before anything is run where that can be known. `files` must outlive the figures.
Reproduction reproduce(const std::vector<ClaimFile>& files, const ReproduceOptions& options);

}  // namespace kv::claims
