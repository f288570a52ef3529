// The caches that serve requests in a machine's memory: each spec replayed over a trace, or counted for a number of users.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/geometry.h"
#include "harness/io/bytes.h"
#include "harness/io/text_table.h"
#include "harness/planner/hit_columns.h"
#include "harness/planner/known_quality.h"
#include "harness/planner/trace_facts.h"
#include "harness/planner/trace_replay.h"
#include "harness/results/schema.h"
#include "variants/model_cache/layer_specs.h"

namespace kv::planner {

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
  QualityRun quality = {};  // without a name: not asked for
  int64_t context = 0, users = 0;
};

// The room that the weights leave of so many bytes, for sequences up to the model's trained context.
Room room_of(const config::Geometry& geometry, int64_t room_bytes, int64_t typical_tokens, int max_sequences);

// A row of the table as CSV.
struct PlanResult {
  std::string model, variant, status, reason, trace;
  results::Integer memory_bytes, weights_bytes, room_bytes, held_bytes;
  results::Integer requests, refused, users_p50, users_peak, users_most, pool_blocks;
  results::Number slack_share, preemptions_per_1000, recomputed_share, hit_rate, hit_rate_at_any;
  std::string bytes_from, times_from;
  // The loss of a model's predictions with the cache, by `quality_from`.
  results::Number perplexity_change, perplexity_change_ci_low, perplexity_change_ci_high;
  std::string quality_from;
  results::Number wait_p99_s, ttft_p50_s, ttft_p99_s, tpot_p50_ms, tpot_p99_ms, seconds, tokens_per_s;
};
const results::Schema<PlanResult>& plan_schema();

// A row a variant; variants that serve all requests come first, by the bytes that a sequence takes.
std::vector<PlanResult> results_of(const PlanTable& table);
// With a sentence that answers.
io::TextTable text_table(const PlanTable& table, io::Units units);

inline const results::Table kHitCurve{"the hit-rate curve", {kHitColumns.begin(), kHitColumns.end()}};

}  // namespace kv::planner
