#include "harness/planner/plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "harness/math/stats.h"
#include "harness/tables/fit_table.h"
#include "harness/tables/model_memory.h"

namespace kv::planner {
namespace {

constexpr int64_t kContextWithoutLimit = 131072;

double share(int64_t part, int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0.0;
}

Room room_of(const PlanTable& table) {
  const int64_t trained = table.geometry.max_positions;
  return {.bytes = table.memory_bytes - table.weights_bytes,
          .max_tokens = trained > 0 ? trained : kContextWithoutLimit,
          .typical_tokens = table.facts.typical,
          .max_sequences = table.scheduler.max_running};
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
  const Room room = room_of(table);
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
  const RowAllocator rows(
      table.geometry, spec,
      {.bytes = int64_t{1} << 60, .max_tokens = table.context, .typical_tokens = table.context});
  StepWork work{.tokens = table.users};
  for (const RowAllocator::Kept& kept : rows.kept())
    work.pairs += static_cast<double>(table.users * kept.layers * std::min(table.context, kept.most_rows));
  work.kv_bytes = static_cast<double>(table.users) * rows.payload_bytes(table.context);
  row.times_from = "assumed";
  row.tpot_p50_ms = 1e3 * StepTime(table.geometry, table.weights_bytes, table.device).seconds(work);
  return row;
}

// Capacities from 1 to the largest at which anything changes, equally far apart in logarithm.
std::set<int64_t> capacities(const HitRates& hits) {
  constexpr int kPoints = 32;
  std::set<int64_t> all;
  const std::vector<int64_t> steps = hits.steps();
  if (steps.empty()) return all;
  const double most = std::log(static_cast<double>(steps.back()));
  for (int i = 0; i <= kPoints; ++i) all.insert(std::lround(std::exp(most * i / kPoints)));
  return all;
}

}  // namespace

TraceFacts read_facts(const OpenRequests& open, std::vector<int64_t> block_tokens) {
  TraceFacts facts;
  std::vector<BlockTree> trees;
  const bool asked = !block_tokens.empty();
  RequestSource source = open();
  double tokens = 0.0;
  for (io::Request request; source.next(request);) {
    if (!request.prefix_ids.empty() && block_tokens.empty()) block_tokens = {request.id_tokens};
    for (size_t i = trees.size(); i < block_tokens.size(); ++i) {
      trees.emplace_back(block_tokens[i]);
      facts.hits.emplace_back();
    }
    for (size_t i = 0; i < trees.size(); ++i) facts.hits[i].add(trees[i].nodes(request));
    ++facts.requests;
    facts.seconds = request.arrival_s;
    facts.prompt.push_back(static_cast<double>(request.prompt_tokens));
    facts.output.push_back(static_cast<double>(request.output_tokens));
    facts.longest = std::max(facts.longest, request.prompt_tokens + request.output_tokens);
    tokens += static_cast<double>(request.prompt_tokens + request.output_tokens);
  }
  facts.typical = std::llround(std::ceil(tokens / static_cast<double>(facts.requests)));
  if (asked && facts.hits.front().blocks() == 0)
    throw std::invalid_argument("--prefix-blocks needs a trace with ids of blocks, and this one has none");
  facts.block_tokens = std::move(block_tokens);
  return facts;
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

std::vector<HitResult> hit_curve(const PlanTable& table) {
  std::vector<HitResult> rows;
  for (size_t i = 0; i < table.facts.hits.size(); ++i) {
    const HitRates& hits = table.facts.hits[i];
    const int64_t tokens = table.facts.block_tokens[i];
    BlockTree tree(tokens);
    std::vector<std::vector<int32_t>> requests;
    RequestSource source = table.open();
    for (io::Request request; source.next(request);) requests.push_back(tree.nodes(request));
    for (const int64_t capacity : capacities(hits)) {
      HitResult& row = rows.emplace_back();
      row.block_tokens = tokens;
      row.capacity_blocks = capacity;
      row.hit_rate = share(hits.hits(capacity), hits.blocks());
      row.belady_hit_rate = share(belady_hits(requests, capacity), hits.blocks());
      row.hit_rate_at_any = share(hits.hits_at_any(), hits.blocks());
    }
  }
  return rows;
}

const results::Schema<HitResult>& hit_schema() {
  using F = HitResult;
  static const results::Schema<F> schema(
      "the hit-rate curve",
      {{"block_tokens", "tokens", &F::block_tokens, "of a block of the prefix cache"},
       {"capacity_blocks", "", &F::capacity_blocks, "blocks that it holds"},
       {"hit_rate", "1", &F::hit_rate,
        "blocks of prompts found / all, where the least recently used goes; computed, requests one after "
        "another"},
       {"belady_hit_rate", "1", &F::belady_hit_rate,
        "where what is used again last goes, or is not taken at all: no policy finds more"},
       {"hit_rate_at_any", "1", &F::hit_rate_at_any,
        "in a cache without limit: (blocks - distinct) / blocks"}});
  return schema;
}

}  // namespace kv::planner
