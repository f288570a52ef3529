// `kvlab plan`: the caches that serve a trace of requests, or a number of users, in a machine's memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cli/document.h"
#include "harness/planner/trace_replay.h"

namespace CLI {
class App;
}

namespace kv::cli {

struct PlanOptions {
  std::string model = "llama-3.1-8b";  // a preset, or the path of a config.json
  bool trust_config = false;           // as config::read_geometry() does
  std::string memory, weights;         // weights empty: the model file's
  std::string variants = "contiguous/f16; paged/f16; paged/q8_0; paged(block=32)/kivi(bits=2)";
  std::string trace, arrivals, device, hit_curve, quality;
  std::string preempt = "recompute";
  int64_t requests = 0;  // 0: the trace's
  int64_t context = 0, users = 0;
  std::vector<int64_t> prefix_blocks;
  planner::SchedulerSettings scheduler;
  uint64_t seed = 1;
  TableOutput output;
};

void add_options(CLI::App& app, PlanOptions& options);

// Returns the text to print. Throws std::invalid_argument, or std::runtime_error if a file cannot be written.
std::string run_plan(const PlanOptions& options);

}  // namespace kv::cli
