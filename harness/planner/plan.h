// Which caches serve requests in a machine's memory: each spec replayed over a trace, or counted for a number of users.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/config/geometry.h"
#include "harness/io/bytes.h"
#include "harness/io/text_table.h"
#include "harness/planner/hit_rate.h"
#include "harness/planner/replay.h"
#include "harness/planner/request_source.h"
#include "harness/results/schema.h"
#include "variants/model_cache/layer_specs.h"

namespace kv::planner {

// Opens the requests again, from the first.
using OpenRequests = std::function<RequestSource()>;

// What is known of a trace after reading it once.
struct TraceFacts {
  int64_t requests = 0;
  double seconds = 0.0;                // from the first to the last
  std::vector<double> prompt, output;  // tokens, by request
  int64_t longest = 0;                 // tokens of a prompt and its answer
  int64_t typical = 0;                 // their mean
  std::vector<int64_t> block_tokens;   // of prefix blocks; empty where the trace has no ids
  std::vector<HitRates> hits;          // by block_tokens
};
// `block_tokens`: sizes to look at; none: the trace's own. Throws std::invalid_argument for a trace without ids where
// sizes are given, and as RequestTrace and BlockTree do.
TraceFacts read_facts(const OpenRequests& open, std::vector<int64_t> block_tokens);

struct PlanTable {
  config::Geometry geometry;
  std::vector<LayerSpecs> variants;
  int64_t memory_bytes = 0, weights_bytes = 0;
  std::string memory_text, weights_text, device_text;
  std::string trace = {};  // the file's name; empty: `users` with `context` tokens each
  std::string arrivals = {};
  TraceFacts facts = {};
  OpenRequests open = {};
  Device device = {};
  Scheduler scheduler = {};
  int64_t context = 0, users = 0;
};

// A row of the table as CSV.
struct PlanResult {
  std::string model, variant, status, reason, trace;
  results::Integer memory_bytes, weights_bytes, room_bytes, held_bytes;
  results::Integer requests, refused, users_p50, users_peak, users_most, pool_blocks;
  results::Number slack_share, preemptions_per_1000, recomputed_share, hit_rate, hit_rate_at_any;
  std::string bytes_from, times_from;
  results::Number wait_p99_s, ttft_p50_s, ttft_p99_s, tpot_p50_ms, tpot_p99_ms, seconds, tokens_per_s;
};
const results::Schema<PlanResult>& plan_schema();

// A row a variant, those that serve all first, by the bytes that a sequence takes.
std::vector<PlanResult> results_of(const PlanTable& table);
// With a sentence that answers.
io::TextTable text_table(const PlanTable& table, io::Units units);

// A point of a hit-rate curve.
struct HitResult {
  results::Integer block_tokens, capacity_blocks;
  results::Number hit_rate, belady_hit_rate, hit_rate_at_any;
};
const results::Schema<HitResult>& hit_schema();
// Some tens of capacities for each block size. Reads the requests once a size.
std::vector<HitResult> hit_curve(const PlanTable& table);

}  // namespace kv::planner
