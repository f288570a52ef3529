#include "harness/planner/serving_plan.h"

#include <algorithm>
#include <cmath>

#include "harness/math/stats.h"
#include "harness/measure/prediction_columns.h"
#include "harness/tables/fit_table.h"
#include "harness/tables/model_memory.h"

namespace kv::planner {
namespace {

double share(int64_t part, int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0.0;
}

PlanResult row_of(const PlanTable& table, const LayerSpecs& spec) {
  PlanResult row;
  row.model = table.geometry.name;
  row.variant = spec.print();
  row.trace = table.trace;
  row.memory_bytes = table.memory_bytes;
  row.weights_bytes = table.weights_bytes;
  row.room_bytes = table.memory_bytes - table.weights_bytes;
  row.bytes_from = "computed";
  if (table.quality.name().empty()) return row;
  const results::Row* cell = table.quality.find(spec);
  row.quality_from =
      cell ? table.quality.name() + ": " + table.quality.setting(*cell, table.geometry) : "unknown";
  if (!cell) return row;
  const auto change = [](const results::Number& loss) {
    return loss ? results::Number(std::expm1(*loss)) : results::Number();
  };
  row.perplexity_change = change((*cell)[measure::kLossChange]);
  row.perplexity_change_ci_low = change((*cell)[measure::kLossChangeCiLow]);
  row.perplexity_change_ci_high = change((*cell)[measure::kLossChangeCiHigh]);
  return row;
}

void set_hit_rate(const PlanTable& table, const RowAllocator& rows, PlanResult& row) {
  if (table.facts.hits.empty()) return;
  const HitRates& hits = table.facts.hits.front();
  const double block = rows.payload_bytes(table.facts.block_tokens.front());
  row.hit_rate =
      share(hits.hits(static_cast<int64_t>(static_cast<double>(rows.room_bytes()) / block)), hits.blocks());
  row.hit_rate_at_any = share(hits.hits_at_any(), hits.blocks());
}

void set_times(const ReplayResult& result, PlanResult& row) {
  row.times_from = "assumed";
  row.seconds = result.seconds;
  if (result.seconds > 0.0) row.tokens_per_s = static_cast<double>(result.generated_tokens) / result.seconds;
  if (result.ttft_s.empty()) return;
  row.wait_p99_s = math::percentile(result.wait_s, 99.0);
  row.ttft_p50_s = math::percentile(result.ttft_s, 50.0);
  row.ttft_p99_s = math::percentile(result.ttft_s, 99.0);
  if (result.tpot_s.empty()) return;
  row.tpot_p50_ms = 1e3 * math::percentile(result.tpot_s, 50.0);
  row.tpot_p99_ms = 1e3 * math::percentile(result.tpot_s, 99.0);
}

PlanResult replayed(const PlanTable& table, const LayerSpecs& spec) {
  PlanResult row = row_of(table, spec);
  const Room room = room_of(table.geometry, table.memory_bytes - table.weights_bytes, table.facts.typical,
                            table.scheduler.max_running);
  row.reason = RowAllocator::unsupported(table.geometry, spec, room);
  if (!row.reason.empty()) {
    row.status = "unsupported";
    return row;
  }
  RowAllocator rows(table.geometry, spec, room);
  RequestSource source = table.open();
  const ReplayResult result =
      replay([&](io::Request& request) { return source.next(request); }, rows,
             StepTime(table.geometry, table.weights_bytes, table.device), table.scheduler);
  row.requests = result.requests;
  row.refused = result.refused;
  row.status = result.refused == 0 ? "fits" : "refuses";
  set_times(result, row);
  if (result.refused == result.requests) return row;
  row.users_p50 = result.running_percentile(50.0);
  row.users_peak = result.peak_running();
  if (rows.pool_blocks() > 0) row.pool_blocks = rows.pool_blocks();
  row.held_bytes = result.peak_held_bytes;
  row.slack_share = result.slack_share;
  row.preemptions_per_1000 = 1e3 * share(result.preemptions, result.requests);
  row.recomputed_share = share(result.recomputed_tokens, result.prompt_tokens + result.generated_tokens);
  set_hit_rate(table, rows, row);
  return row;
}

// By the closed form: how many users of so many tokens there is room for.
PlanResult counted(const PlanTable& table, const LayerSpecs& spec) {
  PlanResult row = row_of(table, spec);
  const tables::ModelMemory memory(table.geometry, spec, {table.context, static_cast<int>(table.users)});
  row.reason = memory.unsupported();
  if (!row.reason.empty()) {
    row.status = "unsupported";
    return row;
  }
  row.held_bytes = memory.predicted_bytes();
  row.users_most = tables::largest_batch(table.geometry, spec, table.context, {*row.room_bytes}).most;
  row.status = *row.users_most >= table.users ? "fits" : "too_large";
  if (table.device.read_gbps == 0.0) return row;
  // One token of each user.
  // A pool's tables take memory and time, so it is no larger than twice what these users hold.
  const RowAllocator rows(
      table.geometry, spec,
      {.bytes = 2 * *row.held_bytes, .max_tokens = table.context, .typical_tokens = table.context});
  StepWork work{.tokens = table.users};
  for (const RowAllocator::Kept& kept : rows.kept())
    work.pairs += static_cast<double>(table.users * kept.layers * std::min(table.context, kept.most_rows));
  work.kv_bytes = static_cast<double>(table.users) * rows.payload_bytes(table.context);
  row.times_from = "assumed";
  row.tpot_p50_ms = 1e3 * StepTime(table.geometry, table.weights_bytes, table.device).seconds(work);
  return row;
}

}  // namespace

Room room_of(const config::Geometry& geometry, int64_t room_bytes, int64_t typical_tokens,
             int max_sequences) {
  constexpr int64_t kContextWithoutLimit = 131072;
  return {.bytes = room_bytes,
          .max_tokens = geometry.max_positions > 0 ? geometry.max_positions : kContextWithoutLimit,
          .typical_tokens = typical_tokens,
          .max_sequences = max_sequences};
}

std::vector<PlanResult> results_of(const PlanTable& table) {
  std::vector<PlanResult> rows;
  for (const LayerSpecs& spec : table.variants)
    rows.push_back(table.trace.empty() ? counted(table, spec) : replayed(table, spec));
  // A cache that is full holds as much as any other, for fewer at once.
  const auto bytes_each = [](const PlanResult& row) {
    const int64_t sequences = std::max<int64_t>(row.users_peak.value_or(1), 1);
    return static_cast<double>(row.held_bytes.value_or(0)) / static_cast<double>(sequences);
  };
  const auto rank = [](const PlanResult& row) { return row.status == "fits" ? 0 : row.held_bytes ? 1 : 2; };
  std::stable_sort(rows.begin(), rows.end(), [&](const PlanResult& a, const PlanResult& b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return bytes_each(a) < bytes_each(b);
  });
  return rows;
}

}  // namespace kv::planner
