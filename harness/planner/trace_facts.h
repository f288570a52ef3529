// Facts about a trace: its lengths, and the share of its prompts that a prefix cache would have had.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "harness/planner/hit_columns.h"
#include "harness/planner/hit_rate.h"
#include "harness/planner/request_source.h"

namespace kv::planner {

// Opens the requests again, from the first.
using OpenRequests = std::function<RequestSource()>;

struct TraceFacts {
  int64_t requests = 0;
  double seconds = 0.0;                // from the first to the last
  std::vector<double> prompt, output;  // tokens, by request
  int64_t longest = 0;                 // tokens of a prompt and its answer
  int64_t typical = 0;                 // their mean
  bool sessions = false;               // requests say which belong together
  std::vector<int64_t> block_tokens;   // a prefix block's; empty if the trace has no ids
  std::vector<HitRates> hits;          // by block_tokens
};
// `block_tokens`: sizes to look at; none: the trace's own. Throws std::invalid_argument for a trace without ids where
// sizes are given, and as RequestTrace and BlockTree do.
TraceFacts read_facts(const OpenRequests& open, std::vector<int64_t> block_tokens);

// Rows of kHitColumns: some tens of capacities for each block size. Reads the requests once a size.
std::vector<results::Row> hit_curve(const TraceFacts& facts, const OpenRequests& open);

}  // namespace kv::planner
