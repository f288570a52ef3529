#include "harness/planner/serving_plan.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "harness/measure/exposure.h"
#include "harness/measure/prediction_columns.h"
#include "harness/planner/plan_columns.h"
#include "harness/planner/serving_row.h"
#include "harness/tables/fit_table.h"
#include "harness/tables/model_memory.h"

namespace kv::planner {
namespace {

results::Row row_of(const PlanTable& table, const LayerSpecs& spec) {
  results::Row row;
  row[tables::kModel] = table.geometry.name;
  row[results::kVariant] = spec.print();
  row[kTraceFile] = table.trace;
  row[kMemoryBytes] = table.memory_bytes;
  row[tables::kWeightsBytes] = table.weights_bytes;
  row[kRoomBytes] = table.memory_bytes - table.weights_bytes;
  row[kBytesFrom] = "computed";
  if (table.quality.name().empty()) return row;
  const results::Row* cell = table.quality.find(spec);
  row[kQualityFrom] =
      cell ? table.quality.name() + ": " + table.quality.setting(*cell, table.geometry) : "unknown";
  if (!cell) return row;
  const int64_t tokens = (*cell)[results::kSeqLen].value_or(1),
                context = table.trace.empty() ? table.context : table.facts.typical;
  results::Row judged;
  judged[results::kSeqLen] = tokens;
  measure::record_exposure(judged, spec, config::shape_of(table.geometry, tokens, 1), {.length = tokens},
                           context);
  if (measure::is_untested(judged)) {
    row[kQualityFrom] += ": " + measure::untested_text(judged);
    return row;
  }
  const auto change = [](const results::Number& loss) {
    return loss ? results::Number(std::expm1(*loss)) : results::Number();
  };
  row[kPerplexityChange] = change((*cell)[measure::kLossChange]);
  row[kPerplexityChange.low] = change((*cell)[measure::kLossChange.low]);
  row[kPerplexityChange.high] = change((*cell)[measure::kLossChange.high]);
  return row;
}

results::Row replayed(const PlanTable& table, const LayerSpecs& spec) {
  results::Row row = row_of(table, spec);
  const Room room = room_of(table.geometry, table.memory_bytes - table.weights_bytes, table.facts.typical,
                            table.scheduler.max_running);
  row[results::kReason] = RowAllocator::unsupported(table.geometry, spec, room);
  if (!row[results::kReason].empty()) {
    row[kPlanStatus] = "unsupported";
    return row;
  }
  RowAllocator rows(table.geometry, spec, room);
  RequestSource source = table.open();
  const ReplayResult result =
      replay([&](io::Request& request) { return source.next(request); }, rows,
             StepTime(table.geometry, table.weights_bytes, table.device), table.scheduler);
  row[kRequests] = result.requests;
  row[kRefused] = result.refused;
  row[kPlanStatus] = result.refused == 0 ? "fits" : "refuses";
  row[kTimesFrom] = "assumed";
  row[kSeconds] = result.seconds;
  results::Row cell;
  set_facts(cell, table.facts);
  if (!set_replay(cell, result, rows, table.facts)) {
    if (result.seconds > 0.0) row[kTokensPerS] = 0.0;
    return row;
  }
  row.copy(cell, kPlan.columns);
  row[kTokensPerS] = cell[kServedTokensPerS];
  row[kUsersP50] = cell[kRunningP50];
  row[kUsersPeak] = cell[kRunningPeak];
  row[kHeldBytes] = cell[kHeldPeakBytes];
  row[kHitRate] = cell[kHitRateCurve];
  row[kSlackShare] = result.slack_share;
  row[kRecomputedShare] = static_cast<double>(result.recomputed_tokens) /
                          static_cast<double>(result.prompt_tokens + result.generated_tokens);
  return row;
}

// Counts the users of `context` tokens that fit, by the closed form.
results::Row counted(const PlanTable& table, const LayerSpecs& spec) {
  results::Row row = row_of(table, spec);
  const tables::ModelMemory memory(table.geometry, spec, {table.context, static_cast<int>(table.users)});
  row[results::kReason] = memory.unsupported();
  if (!row[results::kReason].empty()) {
    row[kPlanStatus] = "unsupported";
    return row;
  }
  row[kHeldBytes] = memory.predicted_bytes();
  row[kUsersMost] = tables::largest_batch(table.geometry, spec, table.context, {*row[kRoomBytes]}).most;
  row[kPlanStatus] = *row[kUsersMost] >= table.users ? "fits" : "too_large";
  if (table.device.read_gbps == 0.0) return row;
  // A pool's tables take memory and time, so the pool has no more than twice the bytes of these users.
  const RowAllocator rows(
      table.geometry, spec,
      {.bytes = 2 * *row[kHeldBytes], .max_tokens = table.context, .typical_tokens = table.context});
  StepWork work{.tokens = table.users};  // one token of each user
  for (const RowAllocator::Kept& kept : rows.kept())
    work.pairs += static_cast<double>(table.users * kept.layers * std::min(table.context, kept.most_rows));
  work.kv_bytes = static_cast<double>(table.users) * rows.payload_bytes(table.context);
  row[kTimesFrom] = "assumed";
  row[kTpotP50Ms] = 1e3 * StepTime(table.geometry, table.weights_bytes, table.device).seconds(work);
  return row;
}

// The spec without what changes no bit.
std::string key_of(LayerSpecs specs) {
  const auto forget = [plain = parse_spec("contiguous").placement](Spec& spec) {
    if (!has_tiers(spec)) spec.placement = plain;
  };
  forget(specs.fallback);
  for (LayerException& exception : specs.exceptions) forget(exception.spec);
  return specs.print();
}

}  // namespace

QualityRun::QualityRun(std::vector<results::Row> cells, std::string name) : name_(std::move(name)) {
  for (results::Row& cell : cells) {
    if (cell[results::kStatus] != results::Status::kOk || !cell[measure::kLossChange]) continue;
    keys_.push_back(key_of(parse_layer_specs(cell[results::kVariant])));
    cells_.push_back(std::move(cell));
  }
  if (cells_.empty())
    throw std::invalid_argument(name_ +
                                " has no cells of the quality experiment, whose perplexities are needed");
}

const results::Row* QualityRun::find(const LayerSpecs& spec) const {
  const results::Row* found = nullptr;
  const std::string key = key_of(spec);
  for (size_t i = 0; i < cells_.size(); ++i)
    if (keys_[i] == key && (!found || cells_[i][results::kSeqLen] > (*found)[results::kSeqLen]))
      found = &cells_[i];
  return found;
}

std::string QualityRun::setting(const results::Row& cell, const config::Geometry& g) const {
  const bool same = cell[results::kLayers] == g.layers && cell[results::kQHeads] == g.q_heads &&
                    cell[results::kKvHeads] == g.kv_heads && cell[results::kHeadDim] == g.head_dim;
  return (same ? "this geometry"
               : "another model (" + std::to_string(cell[results::kLayers].value_or(0)) + " layers)") +
         ", " + tables::grouped(cell[results::kSeqLen].value_or(0)) + " tokens";
}

Room room_of(const config::Geometry& geometry, int64_t room_bytes, int64_t typical_tokens,
             int max_sequences) {
  constexpr int64_t kContextWithoutLimit = 131072;
  return {.bytes = room_bytes,
          .max_tokens = geometry.max_positions > 0 ? geometry.max_positions : kContextWithoutLimit,
          .typical_tokens = typical_tokens,
          .max_sequences = max_sequences};
}

void check_machine(const MachineWords& words, const std::string& weights, int64_t room_bytes,
                   bool has_clock) {
  if (!has_clock) throw std::invalid_argument("a replay needs a clock: " + words.clock);
  if (weights.empty())
    throw std::invalid_argument("the size of the model's weights is unknown; give " + words.weights);
  if (room_bytes <= 0)
    throw std::invalid_argument(words.memory + " has no room for caches: the weights take " + weights);
}

std::vector<results::Row> results_of(const PlanTable& table) {
  std::vector<results::Row> rows;
  for (const LayerSpecs& spec : table.variants)
    rows.push_back(table.trace.empty() ? counted(table, spec) : replayed(table, spec));
  // Full caches hold equal bytes, so bytes a sequence rank them.
  const auto bytes_each = [](const results::Row& row) {
    const int64_t sequences = std::max<int64_t>(row[kUsersPeak].value_or(1), 1);
    return static_cast<double>(row[kHeldBytes].value_or(0)) / static_cast<double>(sequences);
  };
  const auto rank = [](const results::Row& row) {
    return row[kPlanStatus] == "fits" ? 0 : row[kHeldBytes] ? 1 : 2;
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const results::Row& a, const results::Row& b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return bytes_each(a) < bytes_each(b);
  });
  return rows;
}

}  // namespace kv::planner
