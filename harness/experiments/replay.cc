#include "harness/experiments/replay.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "harness/config/request_lengths.h"
#include "harness/experiments/list.h"
#include "harness/io/bytes.h"
#include "harness/io/paths.h"
#include "harness/math/clusters.h"
#include "harness/math/random.h"
#include "harness/planner/plan.h"
#include "harness/results/append_file.h"

namespace kv::experiments {
namespace {

using results::CellResult;

constexpr int64_t kDrawnRequests = 2000;

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
      .output = config::draw_lengths(r.output, sequences, math::random::key({seed, kOutput}))});
  return [=] { return planner::RequestSource(lengths, arrivals, requests, seed); };
}

void check_replay(const measure::SweepPoint& point) {
  const config::ReplayConfig& r = settings(point);
  if (r.clock.read_gbps == 0.0)
    refuse_config(point, "needs a clock: device = {read_gbps = 1008, flops = 165e12}");
  if (weights_bytes(point) == 0)
    refuse_config(point, "needs weights = \"16GB\": the size of those of '" + point.config->served.name +
                             "' is not known");
  if (weights_bytes(point) >= machine_bytes(point))
    refuse_config(point, "memory " + point.machine_memory + " has no room for caches: the weights take " +
                             io::human_bytes(weights_bytes(point)));
  if (point.trace.empty() && point.arrivals == "trace")
    refuse_config(point, "arrivals \"trace\" are those of a trace, and none is given");
  try {
    planner::RequestSource source = requests_of(point)();
    io::Request first;
    source.next(first);
    if (!r.prefix_blocks.empty() && first.prefix_ids.empty())
      refuse_config(point,
                    "prefix_blocks need a trace with ids of blocks, and '" + point.workload + "' has none");
    for (const int64_t tokens : r.prefix_blocks) planner::BlockTree(tokens).nodes(first);
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
  for (size_t i = 0; i < axes.variants.size(); ++i) {
    const LayerSpecs& spec = axes.variants[i];
    measure::PlannedCell cell{
        .key = point.key(spec), .spec = spec, .variant = spec.print(), .series = axes.series[i]};
    try {
      cell.reason = planner::RowAllocator::unsupported(point.config->served, spec, room_of(point, 1));
    } catch (const std::invalid_argument& e) {  // layers that there are not
      refuse_config(point, std::string("variants have a mistake: ") + e.what());
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

int64_t tokens_at(const std::vector<double>& values, double p) {
  return static_cast<int64_t>(math::percentile(values, p));
}

void set_facts(CellResult& row, const planner::TraceFacts& facts) {
  row.requests = facts.requests;
  row.trace_s = facts.seconds;
  row.prompt_p50_tokens = tokens_at(facts.prompt, 50);
  row.prompt_p99_tokens = tokens_at(facts.prompt, 99);
  row.output_p50_tokens = tokens_at(facts.output, 50);
  row.output_p99_tokens = tokens_at(facts.output, 99);
  row.clusters = facts.sessions ? "sessions" : "minutes";
  if (facts.hits.empty()) return;
  const planner::HitRates& hits = facts.hits.front();
  const auto blocks = static_cast<double>(hits.blocks());
  row.distinct_share = static_cast<double>(hits.distinct()) / blocks;
  row.hit_rate_at_any = static_cast<double>(hits.hits_at_any()) / blocks;
}

void set_counts(CellResult& row, const planner::ReplayResult& r, const planner::RowAllocator& rows) {
  row.refused = r.refused;
  row.running_p50 = r.running_percentile(50);
  row.running_p99 = r.running_percentile(99);
  row.running_peak = r.peak_running();
  row.waiting_p50 = r.waiting_percentile(50);
  row.waiting_p99 = r.waiting_percentile(99);
  row.waiting_peak = r.peak_waiting();
  if (rows.pool_blocks() > 0) row.pool_blocks = rows.pool_blocks();
  row.held_peak_bytes = r.peak_held_bytes;
  row.payload_mean_bytes = r.mean.payload_bytes;
  row.slack_mean_bytes = r.mean.slack_bytes;
  row.other_mean_bytes = r.mean.other_bytes;
  row.fragmentation_share = r.mean.slack_bytes / (r.mean.slack_bytes + r.mean.payload_bytes);
  row.preemptions = r.preemptions;
  row.preemptions_per_1000 = 1e3 * static_cast<double>(r.preemptions) / static_cast<double>(r.requests);
  row.recomputed_tokens = r.recomputed_tokens;
  row.swapped_tokens = r.swapped_tokens;
  row.counts_from = "computed";
}

// A percentile and its interval.
struct Place {
  results::Number CellResult::*value, CellResult::*low, CellResult::*high;
};

void set_percentile(CellResult& row, const Place& place, const std::vector<double>& values,
                    const math::Clusters& clusters, double p, double unit) {
  if (values.empty()) return;
  row.*place.value = unit * math::percentile(values, p);
  const math::ConfidenceInterval interval = clusters.percentile_interval(values, p);
  row.*place.low = unit * interval.low;
  row.*place.high = unit * interval.high;
}

void set_times(CellResult& row, const planner::ReplayResult& r) {
  using C = CellResult;
  row.times_from = "assumed";
  row.served_s = r.seconds;
  row.served_tokens_per_s = static_cast<double>(r.generated_tokens) / r.seconds;
  const math::Clusters served(r.cluster), further(r.tpot_cluster), all(r.good_cluster);
  row.cluster_count = all.count();
  set_percentile(row, {&C::wait_p99_s, &C::wait_p99_s_ci_low, &C::wait_p99_s_ci_high}, r.wait_s, served, 99,
                 1);
  set_percentile(row, {&C::ttft_p50_s, &C::ttft_p50_s_ci_low, &C::ttft_p50_s_ci_high}, r.ttft_s, served, 50,
                 1);
  set_percentile(row, {&C::ttft_p99_s, &C::ttft_p99_s_ci_low, &C::ttft_p99_s_ci_high}, r.ttft_s, served, 99,
                 1);
  set_percentile(row, {&C::tpot_p50_ms, &C::tpot_p50_ms_ci_low, &C::tpot_p50_ms_ci_high}, r.tpot_s, further,
                 50, 1e3);
  set_percentile(row, {&C::tpot_p99_ms, &C::tpot_p99_ms_ci_low, &C::tpot_p99_ms_ci_high}, r.tpot_s, further,
                 99, 1e3);
  double good = 0.0;
  for (const double one : r.good) good += one;
  const double rate = static_cast<double>(r.requests) / r.seconds;
  const math::ConfidenceInterval share = all.mean_interval(r.good);
  row.good_share = good / static_cast<double>(r.requests);
  row.good_share_ci_low = share.low;
  row.good_share_ci_high = share.high;
  row.goodput_per_s = rate * *row.good_share;
  row.goodput_per_s_ci_low = rate * share.low;
  row.goodput_per_s_ci_high = rate * share.high;
}

std::vector<results::MomentResult> moment_rows(const CellResult& row, const planner::Timeline& timeline) {
  std::vector<results::MomentResult> rows;
  double end = 0.0;
  for (const planner::Moment& moment : timeline.bins()) {
    results::MomentResult& m = rows.emplace_back(row);
    end += timeline.bin_s();
    m.time_s = std::min(end, *row.served_s);
    m.running = moment.running;
    m.waiting = moment.waiting;
    m.payload_bytes = moment.payload_bytes;
    m.slack_bytes = moment.slack_bytes;
    m.other_bytes = moment.other_bytes;
  }
  return rows;
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
    const planner::StepTime clock(
        point_.config->served, weights_bytes(point_),
        {.read_gbps = r.clock.read_gbps, .flops = r.clock.flops, .link_gbps = r.clock.link_gbps});
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
                                                 .limit_ttft_s = r.limit_ttft_s,
                                                 .limit_tpot_s = r.limit_tpot_ms / 1e3});
    if (control_.stop()) return;
    if (result.refused == result.requests)
      return row.fail(results::Status::kOutOfMemory, "no request has room, even alone");
    row.status = results::Status::kOk;
    set_counts(row, result, rows);
    set_times(row, result);
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
