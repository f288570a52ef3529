// The table [replay] of a config: requests, the machine that serves them, and what is swept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/section.h"

namespace kv::config {

// What a step takes: the cells of a results folder, and a machine as it is stated, each rate 0 where it is not.
struct ClockConfig {
  std::string measured;
  double read_gbps = 0.0, flops = 0.0, link_gbps = 0.0;
};

struct ReplayConfig {
  std::vector<std::string> trace;          // files of io/request_trace.h; none: drawn lengths
  std::vector<std::string> arrivals = {};  // "poisson(2)", "gamma(2,1.5)"; none: the trace's own
  std::string prompt = "zipf(64,8192)";    // of drawn requests, tokens, as an axis `lengths` says them
  std::string output = "zipf(16,1024)";
  int64_t prefix = 0;               // tokens with which all drawn prompts begin, before their own
  int64_t requests = 0;             // 0: the trace's; of drawn ones 2000
  std::vector<std::string> memory;  // of the machine, as written: "24GB"
  int64_t weights_bytes = 0;        // 0: as the model's file has it
  std::vector<int64_t> step_tokens = {2048};
  int max_running = 256;
  double watermark = 0.01;  // of the pool's blocks
  std::string preempt = "recompute";
  int64_t share = 0;  // tokens of a unit in which prefixes are shared; 0: they are not
  ClockConfig clock;
  double limit_ttft_s = 10.0, limit_tpot_ms = 100.0;  // a request within both is goodput
  std::vector<int64_t> prefix_blocks;                 // tokens; of hit-rate curves. None: the trace's own
};

// Overrides what the section has. Throws std::invalid_argument.
void read_replay(Section& section, ReplayConfig& replay);

}  // namespace kv::config
