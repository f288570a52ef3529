// Requests served by a real model over a real cache: the scheduler of replays plans the steps over an allocator without
// rows, and each of its steps is run.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/experiments/serve/prompts.h"
#include "harness/model/model.h"
#include "harness/planner/served_clock.h"
#include "harness/planner/trace_replay.h"
#include "harness/results/row.h"
#include "variants/cache/prefix_cache.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::experiments {

// What serves: a model with caches of a spec in a room.
struct ServingSetup {
  const model::Model* model;
  LayerSpecs spec;
  planner::Room room;
  planner::SchedulerSettings scheduler;  // share_tokens: the cache's block_tokens(), or 0
  int64_t ledger_bytes = INT64_MAX;      // the real cache's limit, workspace included
};

// The geometry of a model, for allocators without rows.
config::Geometry geometry_of(const model::ModelConfig& config);
// Tokens of a block of rows that sequences of this spec can share; 0 where they cannot.
int64_t shared_tokens(const LayerSpecs& spec, const planner::RowAllocator& rows);

struct ServedRun {
  planner::ReplayResult result;
  std::vector<std::vector<int>> answers;  // by request
  std::vector<planner::ServedClock::Step> steps;
  int64_t padding_tokens = 0;
  double projections_s = 0.0, attention_s = 0.0,
         model_s = 0.0;  // of all steps: parts, and the whole forward pass
  std::string failure;   // the first step at which the caches and the allocator did not agree, or empty
  std::string kernel;    // attention's
};

// Serves all requests once. The clock is that of the steps as they run; it jumps over time in which nobody is there.
// `step_s` > 0: each step counts as so many seconds, whatever it takes. Stops early, and means nothing, where `stop` says so.
// Throws what the cache throws.
ServedRun serve(const ServingSetup& setup, std::span<const ServedRequest> requests,
                const std::function<bool()>& stop, double step_s = 0.0);

// The same requests on the clock `driver`, without a model.
planner::ReplayResult replay_served(const ServingSetup& setup, std::span<const ServedRequest> requests,
                                    const planner::StepDriver& driver);

// Sets the times of all runs: a median over them, with its interval.
void set_times(results::Row& row, std::span<const ServedRun> runs);
// Sets counts of the first run, and times of all.
void set_served(results::Row& row, std::span<const ServedRun> runs, const planner::RowAllocator& rows);
// Sets the times of a replay on a clock fitted to all steps, beside those that set_served() has set, and whether replays of the
// steps' own times count as the runs did.
void set_replayed(results::Row& row, const ServingSetup& setup, std::span<const ServedRequest> requests,
                  std::span<const ServedRun> runs);

}  // namespace kv::experiments
