// `kvlab run --dry-run`: what a run would measure, and what that takes. Nothing is written.
#pragma once

#include <filesystem>
#include <string>

#include "harness/config/config.h"
#include "harness/experiments/shard.h"

namespace kv::cli {

// Seconds of a weight (experiments/plan.h): quickstart's 197,760 tokens took 49 s on 2 cores of a Xeon.
double rough_seconds(double weight);

struct DryRun {
  const config::Config& config;
  experiments::Shard shard;
  std::filesystem::path out;
  bool resume = false;
};
// The text to print; `json`: as JSON (fields: results/json.md). Call io::make_nothing() before. Throws std::invalid_argument as
// the run would.
std::string dry_run(const DryRun& run, bool json);

// One line a point: its shard, estimated time and name; then one line a shard. Throws as run_config does.
std::string shards_listing(const config::Config& config, int shards);

}  // namespace kv::cli
