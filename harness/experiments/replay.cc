#include "harness/experiments/replay.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/config/request_lengths.h"
#include "harness/experiments/list.h"
#include "harness/experiments/replay_rows.h"
#include "harness/io/bytes.h"
#include "harness/io/paths.h"
#include "harness/math/random.h"
#include "harness/measure/stage_columns.h"
#include "harness/planner/plan.h"
#include "harness/results/append_file.h"
#include "harness/results/csv.h"

namespace kv::experiments {
namespace {

using results::CellResult;

constexpr int64_t kDrawnRequests = 2000;
constexpr int64_t kIdTokens = 16;  // of drawn requests with a prefix, where nothing is shared

const config::ReplayConfig& settings(const measure::SweepPoint& point) { return point.experiment->replay; }

[[noreturn]] void refuse_config(const measure::SweepPoint& point, const std::string& what) {
  throw std::invalid_argument(point.config->path + ": [replay] " + what);
}

int64_t machine_bytes(const measure::SweepPoint& point) {
  return io::parse_bytes(point.machine_memory, "replay.memory");
}

int64_t weights_bytes(const measure::SweepPoint& point) {
  const int64_t own = settings(point).weights_bytes;
  return own > 0 ? own : point.config->served.weights_bytes;
}

planner::Arrivals arrivals_of(const measure::SweepPoint& point) {
  return point.arrivals == "trace" ? planner::Arrivals{} : planner::parse_arrivals(point.arrivals);
}

// Of the folder that a run has made; none where no such is given.
std::vector<CellResult> clock_cells(const measure::SweepPoint& point) {
  const std::string& folder = settings(point).clock.measured;
  if (folder.empty()) return {};
  return results::read_csv(io::find_input(folder + "/cells.csv", "device.measured"), results::cell_schema());
}

planner::StepTime clock_of(const measure::SweepPoint& point, const std::vector<CellResult>& cells,
                           CellResult& row) {
  const config::ClockConfig& c = settings(point).clock;
  std::optional<planner::MeasuredSteps> steps;
  if (!c.measured.empty()) {
    steps.emplace(cells, point.config->served, row.variant, c.measured);
    row.clock_residual = steps->residual();
    if (c.read_gbps == 0.0 && !(steps->whole_steps() && steps->has_prompts()))
      throw std::invalid_argument(c.measured + " has no times of " +
                                  (steps->whole_steps() ? "prompts" : "weights and prompts") + " with " +
                                  row.variant + ": give read_gbps and flops besides");
  }
  return {point.config->served,
          weights_bytes(point),
          {.read_gbps = c.read_gbps, .flops = c.flops, .link_gbps = c.link_gbps},
          std::move(steps)};
}

// What opens the point's requests, each time from the first.
planner::OpenRequests requests_of(const measure::SweepPoint& point) {
  const config::ReplayConfig& r = settings(point);
  const planner::Arrivals arrivals = arrivals_of(point);
  const uint64_t seed = point.config->seed;
  if (!point.trace.empty()) {
    const std::string path = io::find_input(point.trace, "trace").string();
    return [=, most = r.requests] { return planner::RequestSource(path, arrivals, most, seed); };
  }
  const int64_t requests = r.requests > 0 ? r.requests : kDrawnRequests;
  constexpr uint64_t kOutput = 0x6f7574707574;  // "output"
  const auto sequences = static_cast<int>(std::min<int64_t>(requests, 1 << 20));
  const auto lengths = std::make_shared<const planner::DrawnLengths>(planner::DrawnLengths{
      .prompt = config::draw_lengths(r.prompt, sequences, seed),
      .output = config::draw_lengths(r.output, sequences, math::random::key({seed, kOutput})),
      .prefix = r.prefix,
      .id_tokens = r.prefix == 0 ? 0
                   : r.share > 0 ? r.share
                                 : kIdTokens});
  return [=] { return planner::RequestSource(lengths, arrivals, requests, seed); };
}

void check_replay(const measure::SweepPoint& point) {
  const config::ReplayConfig& r = settings(point);
  if (r.clock.read_gbps == 0.0 && r.clock.measured.empty())
    refuse_config(point,
                  "needs a clock: device = {read_gbps = 1008, flops = 165e12} or {measured = \"FOLDER\"}");
  if (weights_bytes(point) == 0)
    refuse_config(point, "needs weights = \"16GB\": the size of those of '" + point.config->served.name +
                             "' is not known");
  if (weights_bytes(point) >= machine_bytes(point))
    refuse_config(point, "memory " + point.machine_memory + " has no room for caches: the weights take " +
                             io::human_bytes(weights_bytes(point)));
  if (point.trace.empty() && point.arrivals == "trace")
    refuse_config(point, "arrivals \"trace\" are those of a trace, and none is given");
  try {
    clock_cells(point);
    planner::RequestSource source = requests_of(point)();
    io::Request first;
    source.next(first);
    std::vector<int64_t> blocks = r.prefix_blocks;
    if (r.share > 0) blocks.push_back(r.share);
    if (!blocks.empty() && first.prefix_ids.empty())
      refuse_config(point, "prefix_blocks and share need a trace with ids of blocks, and '" + point.workload +
                               "' has none");
    for (const int64_t tokens : blocks) planner::BlockTree(tokens).nodes(first);
  } catch (const std::invalid_argument& e) {
    if (std::string(e.what()).starts_with(point.config->path)) throw;
    refuse_config(point, e.what());
  }
}

planner::Room room_of(const measure::SweepPoint& point, int64_t typical_tokens) {
  return planner::room_of(point.config->served, machine_bytes(point) - weights_bytes(point), typical_tokens,
                          settings(point).max_running);
}

void plan_replay(measure::SweepPoint& point) {
  const config::Axes& axes = point.experiment->axes;
  const std::vector<CellResult> timed = clock_cells(point);
  for (size_t i = 0; i < axes.variants.size(); ++i) {
    const LayerSpecs& spec = axes.variants[i];
    measure::PlannedCell cell{
        .key = point.key(spec), .spec = spec, .variant = spec.print(), .series = axes.series[i]};
    try {
      cell.reason = planner::RowAllocator::unsupported(point.config->served, spec, room_of(point, 1));
    } catch (const std::invalid_argument& e) {  // layers that there are not
      refuse_config(point, std::string("variants have a mistake: ") + e.what());
    }
    try {
      CellResult row;
      row.variant = cell.variant;
      if (cell.reason.empty()) clock_of(point, timed, row);
    } catch (const std::invalid_argument& e) {  // too few cells of it
      cell.reason = e.what();
    }
    if (!cell.reason.empty()) cell.status = results::Status::kUnsupported;
    point.cells.push_back(std::move(cell));
  }
}

CellResult identity(const measure::SweepPoint& point, const measure::PlannedCell& cell) {
  const config::Geometry& g = point.config->served;
  const config::ReplayConfig& r = settings(point);
  CellResult row;
  row.cell = cell.key;
  row.variant = cell.variant;
  row.series = cell.series;
  const ModelShape shape = config::shape_of(g, std::max<int64_t>(1, point.seq_len), point.batch);
  measure::set_stages(row, cell.spec, cell.is_measured() ? &shape : nullptr);
  row.device = point.context->device();
  row.threads = 1;
  row.experiment = point.experiment->kind;
  row.phase = "decode";
  row.workload = point.workload;
  row.layers = g.layers;
  row.q_heads = g.q_heads;
  row.kv_heads = g.kv_heads;
  row.head_dim = g.latent_dim > 0 ? g.latent_dim : g.head_dim;
  row.batch = point.batch;
  row.seq_len = point.seq_len;
  row.status = cell.status;
  row.reason = cell.reason;
  row.arrivals = point.arrivals;
  row.preempt = r.preempt;
  row.machine = point.machine_memory;
  row.weights_held_bytes = weights_bytes(point);
  row.room_bytes = machine_bytes(point) - weights_bytes(point);
  row.step_tokens = point.step_tokens;
  row.limit_ttft_s = r.limit_ttft_s;
  row.limit_tpot_ms = r.limit_tpot_ms;
  return row;
}

class ReplayRun {
 public:
  ReplayRun(const measure::SweepPoint& point, const measure::RunControl& control,
            results::ResultsFolder& results)
      : point_(point),
        control_(control),
        results_(results),
        open_(requests_of(point)),
        facts_(planner::read_facts(open_, settings(point).prefix_blocks)),
        timed_(clock_cells(point)),
        progress_(control, static_cast<double>(point.cells.size()) * static_cast<double>(facts_.requests)) {
    // The curve does not depend on the machine.
    const config::ReplayConfig& r = settings(point);
    if (!facts_.hits.empty() && point.machine_memory == r.memory.front() &&
        point.step_tokens == r.step_tokens.front() &&
        (r.arrivals.empty() || point.arrivals == r.arrivals.front()))
      curve_ = planner::hit_curve(facts_, open_);
  }

  void serve(CellResult& row, const LayerSpecs& spec) {
    set_facts(row, facts_);
    planner::RowAllocator rows(point_.config->served, spec, room_of(point_, facts_.typical));
    const config::ReplayConfig& r = settings(point_);
    const planner::StepTime clock = clock_of(point_, timed_, row);
    // Of a cache that cannot share, every request has rows of its own.
    const int64_t share = !facts_.hits.empty() && rows.refuses_sharing(r.share).empty() ? r.share : 0;
    planner::RequestSource source = open_();
    const auto next = [&](io::Request& request) {
      progress_.add(1.0);
      return !control_.stop() && source.next(request);
    };
    const planner::ReplayResult result = replay(next, rows, clock,
                                                {.step_tokens = point_.step_tokens,
                                                 .max_running = r.max_running,
                                                 .swap = r.preempt == "swap",
                                                 .watermark = r.watermark,
                                                 .share_tokens = share,
                                                 .limit_ttft_s = r.limit_ttft_s,
                                                 .limit_tpot_s = r.limit_tpot_ms / 1e3});
    if (control_.stop()) return;
    if (result.refused == result.requests)
      return row.fail(results::Status::kOutOfMemory, "no request has room, even alone");
    row.status = results::Status::kOk;
    set_counts(row, result, rows);
    set_times(row, result);
    if (share > 0)
      row.hit_rate = static_cast<double>(result.found_tokens) / static_cast<double>(result.prompt_tokens);
    add_curve(row, rows);
    results_.add_moments(moment_rows(row, result.timeline));
  }

 private:
  void add_curve(CellResult& row, const planner::RowAllocator& rows) {
    if (facts_.hits.empty()) return;
    const planner::HitRates& hits = facts_.hits.front();
    const double block = rows.payload_bytes(facts_.block_tokens.front());
    row.hit_rate_curve =
        static_cast<double>(hits.hits(static_cast<int64_t>(static_cast<double>(rows.room_bytes()) / block))) /
        static_cast<double>(hits.blocks());
    std::vector<results::HitResult> points;
    for (const results::HitPoint& at : curve_) {
      results::HitResult& point = points.emplace_back(row, at);
      point.capacity_bytes = static_cast<int64_t>(static_cast<double>(*at.capacity_blocks) *
                                                  rows.payload_bytes(*at.block_tokens));
    }
    results_.add_hits(points);
  }

  const measure::SweepPoint& point_;
  const measure::RunControl& control_;
  results::ResultsFolder& results_;
  const planner::OpenRequests open_;
  const planner::TraceFacts facts_;
  const std::vector<CellResult> timed_;  // that the clock follows
  measure::PointProgress progress_;
  std::vector<results::HitPoint> curve_;
};

std::vector<CellResult> run_replay(const measure::SweepPoint& point, const measure::RunControl& control,
                                   results::ResultsFolder& results) {
  ReplayRun run(point, control, results);
  std::vector<CellResult> rows;
  for (const measure::PlannedCell& cell : point.cells) {
    CellResult& row = rows.emplace_back(identity(point, cell));
    if (!cell.is_measured()) continue;
    try {
      run.serve(row, cell.spec);
    } catch (const std::invalid_argument&) {
      throw;  // of the trace
    } catch (const results::WriteError&) {
      throw;
    } catch (const std::bad_alloc&) {
      row.fail(results::Status::kOutOfMemory, "no room for a single sequence");
    }
    if (control.stop()) return {};
  }
  return rows;
}

}  // namespace

int64_t longest_request(const config::Config& config) {
  return planner::room_of(config.served, 0, 0, 0).max_tokens;
}

constinit const Experiment kReplay{
    .info = {.name = "replay",
             .help =
                 "requests of a trace, or drawn ones, through the caches' allocators on a simulated clock",
             .length_axis = config::LengthAxis::kRequests,
             .takes_latent_rows = true,
             .summary = config::SummaryTable::kReplay},
    .check = check_replay,
    .plan = plan_replay,
    .run = run_replay};

}  // namespace kv::experiments
