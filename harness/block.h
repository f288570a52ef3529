// The cells at one point of the sweep, measured together.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/config.h"
#include "harness/live_cell.h"
#include "harness/results.h"
#include "harness/sources.h"

namespace kv {

struct BlockPlan {
  const Config* config;
  const ExperimentConfig* experiment;
  Source* source;
  std::string workload;
  int batch;
  int64_t seq_len;
  int threads;

  std::string key(const Spec& spec, bool null_ab) const;
  // Every cell's key: one a variant, and the null A/B.
  std::vector<std::string> keys() const;
};

// What runs beyond this would not fit.
struct BlockLimits {
  int64_t memory_bytes;
  std::function<bool()> stop;
};

// Measures all cells of the block and returns their rows in order; samples go to `results` as they are taken.
// Empty if it was stopped.
std::vector<Row> run_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results);

}  // namespace kv
