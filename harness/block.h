// The cells at one point of the sweep, measured together.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
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
  // What the axes kv_heads, head_dim and threads make of it: for the cells' keys.
  std::string shape = {};
  // A ragged batch: what the config says, and the tokens of each sequence; seq_len is the longest.
  std::string lengths = {};
  std::vector<int64_t> tokens = {};
  int64_t distance = 0, passage = 0;  // recall, tokens

  std::string key(const Spec& spec, const std::string& suffix = "") const;
};

struct BlockLimits {
  int64_t memory_bytes;        // what runs beyond this would not fit
  std::function<bool()> stop;  // asked between steps; true ends the block early
  // Told now and then what share of a long block is done; one call at a time.
  std::function<void(double share)> progress = [](double) {};
};

// What is done of a block whose cells run side by side; threads may share one.
class BlockProgress {
 public:
  BlockProgress(const BlockLimits& limits, double total) : limits_(limits), total_(total) {}
  void add(double work);

 private:
  const BlockLimits& limits_;
  const double total_;
  double done_ = 0;
  std::mutex mutex_;
};

// A cell of the block with its identity filled in; `status` is set already where it cannot run, with the
// reason.
std::unique_ptr<LiveCell> make_cell(const BlockPlan& plan, const Spec& spec, const std::string& suffix = "");
bool runs(const LiveCell& cell);
void give_up(LiveCell& cell, const char* status, const std::string& reason);
CacheShape cache_shape(const BlockPlan& plan, int sequences);
// Payload, metadata and slack of a variant at the block's length; beyond any machine's memory, roughly.
int64_t held_bytes(const BlockPlan& plan, const Spec& spec);
// Gives the cell up, with the figures, if it needs more than the run may use.
bool fits(LiveCell& cell, int64_t needed_bytes, const BlockLimits& limits);
// One a variant.
std::vector<std::string> variant_keys(const BlockPlan& plan);
// The ratio of the cell's times to the baseline's, and the verdict, if both were timed.
void compare_cell(LiveCell& cell, const LiveCell& baseline, const std::string& versus);

// The decode and growth experiments.
std::vector<std::string> timed_keys(const BlockPlan& plan);
std::vector<Row> run_timed_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results);

}  // namespace kv
