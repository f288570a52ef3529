// The replay experiment: requests through each variant's own allocators on a simulated clock.
#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/replay/columns.h"
#include "harness/experiments/requests.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/io/paths.h"
#include "harness/measure/time_columns.h"
#include "harness/planner/served_clock.h"
#include "harness/planner/serving_plan.h"
#include "harness/planner/serving_row.h"
#include "harness/results/cell_columns.h"
#include "harness/results/table.h"

namespace kv::experiments {
namespace {

constexpr int64_t kDrawnRequests = 2000;

int64_t machine_bytes(const measure::SweepPoint& point) {
  return io::parse_bytes(point.axes[kMachine], "replay.memory");
}

int64_t weights_bytes(const measure::SweepPoint& point) {
  const int64_t own = settings_of(point)[kWeightsKey];
  return own > 0 ? own : point.config->served.weights_bytes;
}

// Takes requests from a trace, or draws them without one.
bool place_requests(measure::SweepPoint& point) {
  const bool drawn = point.axes[kTraceFile].empty();
  set_arrivals(point);
  point.batch = static_cast<int>(settings_of(point)[kMaxRunningKey]);
  point.seq_len = planner::room_of(point.config->served, 0, 0, 0).max_tokens;
  point.workload = drawn ? "drawn" : std::filesystem::path(point.axes[kTraceFile]).filename().string();
  point.shape =
      " " + point.axes[kArrivals] + " " + point.axes[kMachine] + " c" + point.axes.text(kStepTokens);
  return true;
}

// The cells of the clock's results folder; empty without one. `served` are those of a model's requests, each with a clock of
// its own; `steady` those of steps at one length.
struct ClockCells {
  std::vector<results::Row> steady, served;
};

ClockCells clock_cells(const measure::SweepPoint& point) {
  const std::string& folder = settings_of(point)[kClockKey].measured;
  if (folder.empty()) return {};
  ClockCells cells;
  cells.served = results::read_csv(io::find_input(folder + "/cells.csv", "device.measured"), cell_table());
  cells.steady = cells_with(&Experiment::has_steady_steps, cells.served);
  std::erase_if(cells.served, [](const results::Row& cell) { return !planner::ServedClock::read(cell); });
  return cells;
}

// The served cell of this variant over this model's heads whose clock is to be believed farthest: fitted to steps of the most
// sequences, and of these cells the one whose steps lie nearest to it; null without one.
const results::Row* served_cell(std::span<const results::Row> cells, const config::Geometry& g,
                                const std::string& variant) {
  const results::Row* best = nullptr;
  for (const results::Row& cell : cells) {
    if (cell[results::kVariant] != variant || cell[results::kLayers] != g.layers ||
        cell[results::kQHeads] != g.q_heads || cell[results::kKvHeads] != g.kv_heads ||
        cell[results::kHeadDim] != g.head_dim)
      continue;
    const auto rank = [](const results::Row& row) {
      return std::pair(-row[kRunningPeak].value_or(0), *row[kClockResidual]);
    };
    if (!best || rank(cell) < rank(*best)) best = &cell;
  }
  return best;
}

planner::StepDriver clock_of(const measure::SweepPoint& point, const ClockCells& cells, results::Row& row) {
  const ClockConfig& c = settings_of(point)[kClockKey];
  const config::Geometry& g = point.config->served;
  const std::string& variant = row[results::kVariant];
  if (const results::Row* served = served_cell(cells.served, g, variant)) {
    row[kClockResidual] = (*served)[kClockResidual];
    if (settings_of(point)[kPreemptKey] == "swap")
      throw std::invalid_argument(c.measured + " has no times of swapping: its requests were recomputed");
    // A served cell does not say how far its steps reach, so no time counts as measured.
    return [clock = *planner::ServedClock::read(*served)](const planner::StepPlan&,
                                                          const planner::StepWork& work) {
      return planner::StepSeconds{.computed = clock.seconds(work)};
    };
  }
  if (cells.steady.empty() && !cells.served.empty())
    throw std::invalid_argument(c.measured + " has served no request with " + variant + " over " +
                                std::to_string(g.layers) + " layers of " + std::to_string(g.q_heads) + "/" +
                                std::to_string(g.kv_heads) + " heads of " + std::to_string(g.head_dim));
  std::optional<planner::MeasuredSteps> steps;
  if (!c.measured.empty()) {
    steps.emplace(cells.steady, g, variant, c.measured);
    row[kClockResidual] = steps->residual();
    if (c.rates.read_gbps == 0.0 && !(steps->whole_steps() && steps->has_prompts()))
      throw std::invalid_argument(c.measured + " has no times of " +
                                  (steps->whole_steps() ? "prompts" : "weights and prompts") + " with " +
                                  variant + ": give read_gbps and flops besides");
  }
  return planner::StepTime(g, weights_bytes(point), c.rates, std::move(steps));
}

void check_replay(const measure::SweepPoint& point) {
  const config::Settings& r = settings_of(point);
  try {
    const int64_t weights = weights_bytes(point);
    planner::check_machine({"memory " + point.axes[kMachine], "weights = \"16GB\"",
                            "device = {read_gbps = 1008, flops = 165e12} or {measured = \"FOLDER\"}"},
                           weights > 0 ? io::human_bytes(weights) : "", machine_bytes(point) - weights,
                           r[kClockKey].rates.read_gbps > 0.0 || !r[kClockKey].measured.empty());
    clock_cells(point);
    std::vector<int64_t> blocks = r[kPrefixBlocksKey];
    if (r[kShareKey] > 0) blocks.push_back(r[kShareKey]);
    planner::check_blocks(requests_of(point, kDrawnRequests), blocks);
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument(config_prefix(point) + e.what());
  }
}

planner::Room room_of(const measure::SweepPoint& point, int64_t typical_tokens) {
  return planner::room_of(point.config->served, machine_bytes(point) - weights_bytes(point), typical_tokens,
                          static_cast<int>(settings_of(point)[kMaxRunningKey]));
}

void plan_replay(measure::SweepPoint& point) {
  const config::Axes& axes = point.experiment->axes;
  const ClockCells timed = clock_cells(point);
  for (size_t i = 0; i < axes.variants.size(); ++i) {
    const LayerSpecs& spec = axes.variants[i];
    measure::PlannedCell cell{
        .key = point.key(spec), .spec = spec, .variant = spec.print(), .series = axes.series[i]};
    try {
      refuse(cell, planner::RowAllocator::unsupported(point.config->served, spec, room_of(point, 1)));
    } catch (const std::invalid_argument& e) {  // layers that do not exist
      throw std::invalid_argument(config_prefix(point) + "variants have a mistake: " + e.what());
    }
    try {
      results::Row row;
      row[results::kVariant] = cell.variant;
      if (cell.is_measured()) clock_of(point, timed, row);
    } catch (const std::invalid_argument& e) {  // too few cells of it
      refuse(cell, e.what());
    }
    point.cells.push_back(std::move(cell));
  }
}

class ReplayTrial : public Trial {
 public:
  ReplayTrial(const measure::SweepPoint& point, const measure::RunControl& control,
              results::ResultsFolder& results)
      : Trial(point, control, results),
        open_(requests_of(point, kDrawnRequests)),
        facts_(planner::read_facts(open_, settings()[kPrefixBlocksKey])),
        timed_(clock_cells(point)),
        progress_(control, static_cast<double>(point.cells.size()) * static_cast<double>(facts_.requests)) {
    // Every sweep point has the curve, though machines and arrivals do not change it: a shard has only some of them.
    if (!facts_.hits.empty()) curve_ = planner::hit_curve(facts_, open_);
  }

 private:
  void identify(measure::Cell& cell) override {
    const config::Settings& r = settings();
    results::Row& row = cell.result;
    row[kTraceFile].clear();  // an axis without a column: the workload is its name
    row[results::kThreads] = 1;
    row[kPreempt] = r[kPreemptKey];
    row[kWeightsHeldBytes] = weights_bytes(point());
    row[kRoomBytes] = machine_bytes(point()) - weights_bytes(point());
    set_limits(point(), row);
  }

  void prepare(measure::Cell& cell) override {
    try {
      serve(cell.result, cell.spec);
    } catch (const std::bad_alloc&) {
      measure::mark(cell, results::Status::kOutOfMemory, "no room for a single sequence");
    }
  }
  bool prepare_all(const Group& group) override { return Trial::prepare_all(group) && !control().stop(); }

  void serve(results::Row& row, const LayerSpecs& spec) {
    planner::set_facts(row, facts_);
    planner::RowAllocator rows(point().config->served, spec, room_of(point(), facts_.typical));
    const config::Settings& r = settings();
    const planner::StepDriver clock = clock_of(point(), timed_, row);
    // A cache that cannot share keeps each request's rows separately.
    const int64_t share =
        !facts_.hits.empty() && rows.refuses_sharing(r[kShareKey]).empty() ? r[kShareKey] : 0;
    planner::RequestSource source = open_();
    const auto next = [&](io::Request& request) {
      progress_.add(1.0);
      return !control().stop() && source.next(request);
    };
    const planner::SchedulerSettings settings = with_limits(
        point(),
        {.step_tokens = *point().axes[kStepTokens], .swap = r[kPreemptKey] == "swap", .share_tokens = share});
    const planner::ReplayResult result = replay(next, rows, clock, settings);
    if (control().stop()) return;
    if (!planner::set_replay(row, result, rows, facts_))
      return results::fail(row, results::Status::kOutOfMemory, "no request fits, even alone");
    row[results::kStatus] = results::Status::kOk;
    if (share > 0) row[kPrefixHitRate] = result.hit_rate();
    add_curve(row, rows);
    results().add(kMoments, moment_rows(row, result.timeline));
  }

  void add_curve(results::Row& row, const planner::RowAllocator& rows) {
    std::vector<results::Row> points;
    for (const results::Row& at : curve_) {
      results::Row& point = points.emplace_back(results::row_of(row));
      point.copy(at, {planner::kHitColumns.begin(), planner::kHitColumns.end()});
      point[kCapacityBytes] = static_cast<int64_t>(static_cast<double>(*at[planner::kCapacityBlocks]) *
                                                   rows.payload_bytes(*at[planner::kBlockTokens]));
    }
    if (!points.empty()) results().add(kHits, points);
  }

  const planner::OpenRequests open_;
  const planner::TraceFacts facts_;
  const ClockCells timed_;
  measure::PointProgress progress_;
  std::vector<results::Row> curve_;
};

}  // namespace

constexpr auto kReplayGroups = joined(results::kCellColumns, results::kByteColumns, kReplayColumns);
constexpr const results::Table* kReplayTables[] = {&kMoments, &kHits};

std::string good_text(const results::Row& row) {
  return with_interval(row, kGoodShare, "%.1f", 100) + " % " + row[kTimesFrom];
}
const TableColumn kReplayTable[] = {
    {"running p50", shown<kRunningP50, "%g">},
    {"peak", shown<kRunningPeak, "%g">},
    {"preempted per 1,000", shown<kPreemptionsPer1000, "%.1f">},
    {"refused", shown<kRefused, "%g">},
    {"hit rate", [](const results::Row& row) { return percent(row[kPrefixHitRate]); }},
    {"per token p99, ms", shown<kTpotP99Ms, "%.1f">},
    {"TTFT p99, s (95 %)", estimated<kTtftP99S, "%.3g">},
    {"good requests (95 %)", good_text}};

constinit const Experiment kReplay{
    .info = {.name = "replay",
             .help = "a trace's or drawn requests through the caches' allocators on a simulated clock",
             .axes = kReplayAxes,
             .keys = kReplayKeys,
             .check = check_replay_keys,
             .has_workload = false,
             .takes_latent_rows = true},
    .derive_point = place_requests,
    .check = check_replay,
    .columns = kReplayGroups,
    .tables = kReplayTables,
    .table = kReplayTable,
    .plan = plan_replay,
    .run = measured<ReplayTrial>};

}  // namespace kv::experiments
