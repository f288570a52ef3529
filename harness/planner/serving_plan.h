// The caches that serve requests in a machine's memory: each spec replayed over a trace, or counted for a number of users.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/geometry.h"
#include "harness/io/bytes.h"
#include "harness/io/text_table.h"
#include "harness/planner/trace_facts.h"
#include "harness/planner/trace_replay.h"
#include "harness/results/row.h"
#include "variants/model_cache/layer_specs.h"

namespace kv::planner {

// The quality of a model with a cache, looked up in a run that has measured it.
class QualityRun {
 public:
  QualityRun() = default;
  // The cells of a results folder with experiment `quality`; `name`: the folder's, for messages. Throws
  // std::invalid_argument if there are none.
  QualityRun(std::vector<results::Row> cells, std::string name);

  const std::string& name() const { return name_; }
  // The cell of the same codec and retention with the most tokens of context, or null. Its placement may differ, since a
  // placement changes no bit that attention reads, unless it re-encodes rows.
  const results::Row* find(const LayerSpecs& spec) const;
  // The cell's model and context, as "another model (6 layers), 1,024 tokens".
  std::string setting(const results::Row& cell, const config::Geometry& geometry) const;

 private:
  std::string name_;
  std::vector<results::Row> cells_;
  std::vector<std::string> keys_;  // beside cells_
};

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
  SchedulerSettings scheduler = {};
  QualityRun quality = {};  // without a name: not asked for
  int64_t context = 0, users = 0;
};

// A machine's memory in its user's words, and examples of them for what may be missing.
struct MachineWords {
  std::string memory, weights, clock;
};
// Throws std::invalid_argument where no requests can be replayed with `room_bytes` for caches. `weights`: empty if unknown.
void check_machine(const MachineWords& words, const std::string& weights, int64_t room_bytes, bool has_clock);

// Room for sequences up to the model's trained context in `room_bytes`, the bytes that weights leave.
Room room_of(const config::Geometry& geometry, int64_t room_bytes, int64_t typical_tokens, int max_sequences);

// The rows of kPlan, one a variant: those that serve all requests first, then by bytes a sequence.
std::vector<results::Row> results_of(const PlanTable& table);
// Its title is a sentence that answers.
io::TextTable text_table(const PlanTable& table, io::Units units);

}  // namespace kv::planner
