// The serve experiment: requests served by a model over each variant's caches in wall-clock time. Every answer is checked
// against the one that its request gets alone before any time counts.
#include <algorithm>
#include <map>
#include <stdexcept>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/requests.h"
#include "harness/experiments/serve/axes.h"
#include "harness/experiments/serve/check.h"
#include "harness/experiments/serve/columns.h"
#include "harness/experiments/serve/rows.h"
#include "harness/experiments/serving_rows.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/measure/timed_tasks.h"
#include "variants/cache/prefill.h"

namespace kv::experiments {
namespace {

constexpr int64_t kRequestsToServe = 64;
constexpr double kCheckStepS = 1e-3;  // of a step of the run that is checked, so that it is always the same

bool place_served(measure::SweepPoint& point) {
  const config::Settings& s = settings_of(point);
  if (point.axes[kArrivals].empty())
    point.axes[kArrivals] = point.axes[kTraceFile].empty() ? "poisson(1)" : "trace";
  point.batch = static_cast<int>(s[kMaxRunningKey]);
  if (s[kContextTokensKey] > 0)
    point.seq_len = s[kContextTokensKey];
  else if (point.source)  // which an outline has not opened
    point.seq_len = point.source->model()->config().max_tokens;
  const std::string trace = std::filesystem::path(point.axes[kTraceFile]).filename().string();
  point.shape += (trace.empty() ? "" : " " + trace) + " " + point.axes[kArrivals] + " room " +
                 point.axes[kRoom] + " sharing " + point.axes[kSharing];
  return true;
}

std::vector<ServedRequest> requests_to_serve(const measure::SweepPoint& point) {
  const config::Settings& s = settings_of(point);
  return with_prompts(requests_of(point, kRequestsToServe)(), {s[kLengthScaleKey], s[kRateScaleKey]},
                      point.source->text(), point.config->seed);
}

void check_serve(const measure::SweepPoint& point) {
  check_length(point, point.seq_len, "context");
  const auto refuse = [&](const std::string& what) { throw std::invalid_argument(where(point) + what); };
  if (point.source->text().empty()) refuse("needs a text to cut prompts from: give workload.text");
  if (point.axes[kTraceFile].empty() && point.axes[kArrivals] == "trace")
    refuse("arrivals \"trace\" needs a trace");
  try {
    requests_to_serve(point);
  } catch (const std::invalid_argument& e) {
    refuse(e.what());
  }
}

planner::Room room_of(const measure::SweepPoint& point, const LayerSpecs& spec, int64_t typical) {
  const std::vector<int64_t> longest(static_cast<size_t>(point.batch), point.seq_len);
  return {.bytes = point.axes[kRoom] == "all"
                       ? predicted_bytes(spec, measure::cache_shape(point, point.batch), longest)
                       : io::parse_bytes(point.axes[kRoom], "room"),
          .max_tokens = point.seq_len,
          .typical_tokens = typical,
          .max_sequences = point.batch};
}

// The reason that such a cache does not serve, or empty.
std::string unserved_reason(const measure::SweepPoint& point, const LayerSpecs& spec) {
  const model::ModelConfig& model = point.source->model()->config();
  for (const LayerGroup& of : groups_of(spec, measure::cache_shape(point, 1))) {
    if (of.linear) return "linear layers have states, and only rows are served";
    if (prefills_full(of.spec)) return "prefill=full answers otherwise where a prompt comes in chunks";
  }
  const config::Geometry geometry = geometry_of(model);
  const planner::Room room = room_of(point, spec, point.seq_len);
  std::string reason = planner::RowAllocator::unsupported(geometry, spec, room);
  if (!reason.empty() || point.axes[kSharing] == "off") return reason;
  if (shared_tokens(spec, {geometry, spec, room}) > 0) return "";
  return "sharing: the spec has no blocks of rows that sequences can share";
}

// A cell a variant and way of batching.
void plan_serve(measure::SweepPoint& point) {
  const std::vector<std::string>& batchings = settings_of(point)[kBatchingKey];
  for (const LayerSpecs& spec : point.experiment->axes.variants) {
    for (size_t arm = 0; arm < batchings.size(); ++arm) {
      measure::PlannedCell& cell = add_cell(point, spec, "batching " + batchings[arm]);
      cell.arm = arm;
      if (cell.is_measured()) cell.reason = unserved_reason(point, spec);
      if (!cell.reason.empty()) cell.status = results::Status::kUnsupported;
    }
  }
  fit_alone(point,
            [&](const measure::PlannedCell& cell) { return room_of(point, cell.spec, point.seq_len).bytes; });
}

// A cell, what serves, and what it served.
struct Served {
  std::unique_ptr<measure::Cell> cell;
  ServingSetup setup;
  const std::vector<std::vector<int>>* alone = nullptr;
  std::vector<ServedRun> runs = {};
};

class ServeTask : public measure::CellTask {
 public:
  ServeTask(Served& served, std::span<const ServedRequest> requests, const measure::RunControl& control,
            measure::PointProgress& progress)
      : CellTask(*served.cell),
        served_(served),
        requests_(requests),
        control_(control),
        progress_(progress) {}
  std::string name() const override { return served_.cell->key; }
  int iterations() const override { return 1; }
  void begin(int) override {}
  double run() override {
    served_.runs.push_back(serve(served_.setup, requests_, control_.stop));
    return served_.runs.back().result.seconds;
  }
  void end() override {
    progress_.add(1.0);
    if (!control_.stop()) check_run(served_, requests_, served_.runs.back());
  }
  // Fails the cell if a run's caches or answers are wrong.
  static void check_run(Served& served, std::span<const ServedRequest> requests, const ServedRun& run) {
    results::Row& row = served.cell->result;
    std::string failure = run.failure;
    if (failure.empty()) {
      const AnswerCheck check = check_answers(served.setup, requests, *served.alone, run.answers);
      failure = check.failure;
      row[kRoundedAnswers] = std::max(row[kRoundedAnswers].value_or(0), check.rounded);
    }
    if (!failure.empty()) measure::mark(*served.cell, results::Status::kFailed, failure);
  }

 private:
  Served& served_;
  const std::span<const ServedRequest> requests_;
  const measure::RunControl& control_;
  measure::PointProgress& progress_;
};

class ServeRun {
 public:
  ServeRun(const measure::SweepPoint& point, const measure::RunControl& control,
           results::ResultsFolder& results)
      : point_(point),
        control_(control),
        results_(results),
        facts_(planner::read_facts(requests_of(point, kRequestsToServe), {})),
        requests_(requests_to_serve(point)),
        progress_(control, static_cast<double>(point.cells.size()) *
                               (1.0 + static_cast<double>(point.experiment->measure.repetitions))) {}

  // Empty if stopped.
  std::vector<results::Row> run() {
    std::vector<Served> all;
    for (const measure::PlannedCell& planned : point_.cells) {
      all.push_back({measure::make_cell(point_, planned), setup_of(planned)});
      identify(all.back());
      if (measure::runs(*all.back().cell)) measure::attempt(*all.back().cell, [&] { verify(all.back()); });
      if (control_.stop()) return {};
      progress_.add(1.0);
    }
    std::vector<std::unique_ptr<measure::TimedTask>> tasks;
    for (Served& one : all) {
      if (measure::runs(*one.cell))
        tasks.push_back(std::make_unique<ServeTask>(one, requests_, control_, progress_));
    }
    if (!measure::run_interleaved(tasks, point_.experiment->measure.repetitions, control_.stop) ||
        control_.stop())
      return {};
    std::vector<results::Row> rows;
    for (Served& one : all) {
      if (measure::runs(*one.cell)) summarise(one);
      rows.push_back(one.cell->result);
    }
    return rows;
  }

 private:
  ServingSetup setup_of(const measure::PlannedCell& planned) const {
    const config::Settings& s = settings_of(point_);
    ServingSetup setup{.model = point_.source->model(),
                       .spec = planned.spec,
                       .room = room_of(point_, planned.spec, std::max<int64_t>(1, facts_.typical)),
                       .scheduler = scheduler_of(s[kBatchingKey][planned.arm]),
                       .ledger_bytes = point_.cache_bytes};
    setup.scheduler.max_running = point_.batch;
    setup.scheduler.watermark = s[kWatermarkKey];
    setup.scheduler.limit_ttft_s = s[kLimitKey].ttft_s;
    setup.scheduler.limit_tpot_s = s[kLimitKey].tpot_ms / 1e3;
    if (planned.is_measured() && point_.axes[kSharing] == "on")
      setup.scheduler.share_tokens =
          shared_tokens(setup.spec, {geometry_of(setup.model->config()), setup.spec, setup.room});
    return setup;
  }

  void identify(Served& served) const {
    results::Row& row = served.cell->result;
    const config::Settings& s = settings_of(point_);
    set_requests(row, facts_);
    row[kTraceFile].clear();
    row[kBatching] = s[kBatchingKey][served.cell->arm];
    row[kRoomBytes] = served.setup.room.bytes;
    row[kLengthScale] = s[kLengthScaleKey];
    row[kRateScale] = s[kRateScaleKey];
    row[kLimitTtftS] = s[kLimitKey].ttft_s;
    row[kLimitTpotMs] = s[kLimitKey].tpot_ms;
  }

  // Serves once on a clock that is always the same, before any time counts.
  void verify(Served& served) {
    auto& alone = alone_[served.cell->spec.print()];
    if (alone.empty()) alone = answers_alone(served.setup, requests_, control_.stop);
    if (control_.stop()) return;
    served.alone = &alone;
    const ServedRun run = serve(served.setup, requests_, control_.stop, kCheckStepS);
    if (control_.stop()) return;
    served.cell->result[results::kKernel] = run.kernel;
    if (run.result.refused == run.result.requests)
      return measure::mark(*served.cell, results::Status::kOutOfMemory, "no request fits, even alone");
    ServeTask::check_run(served, requests_, run);
  }

  void summarise(Served& served) {
    results::Row& row = served.cell->result;
    row[results::kStatus] = results::Status::kOk;
    const planner::RowAllocator rows(geometry_of(served.setup.model->config()), served.setup.spec,
                                     served.setup.room);
    set_served(row, served.runs, rows);
    if (served.setup.scheduler.share_tokens > 0)
      row[kHitRate] = static_cast<double>(served.runs.front().result.found_tokens) /
                      static_cast<double>(served.runs.front().result.prompt_tokens);
    set_replayed(row, served.setup, requests_, served.runs);
    results_.add(kMoments, moment_rows(row, served.runs.front().result.timeline));
  }

  const measure::SweepPoint& point_;
  const measure::RunControl& control_;
  results::ResultsFolder& results_;
  const planner::TraceFacts facts_;
  const std::vector<ServedRequest> requests_;
  std::map<std::string, std::vector<std::vector<int>>> alone_;  // by spec
  measure::PointProgress progress_;
};

std::vector<results::Row> run_serve(const measure::SweepPoint& point, const measure::RunControl& control,
                                    results::ResultsFolder& results) {
  return ServeRun(point, control, results).run();
}

// A question that the best of all cells that refused nothing answers.
struct Best {
  const char* words;
  const results::Estimate& value;
  const char* unit;
  double sign = 1.0;  // the less the better
};
constexpr Best kBests[] = {{"Most requests", kRequestsPerS, " per second", -1.0},
                           {"Lowest p99 time to the first token", kTtftP99S, " s"},
                           {"Lowest p99 time per token", kTpotP99Ms, " ms"}};

std::string best_server(std::span<const results::Row* const> cells) {
  std::string text;
  for (const Best& best : kBests) {
    const results::Row* found = nullptr;
    for (const results::Row* cell : cells) {
      if (!(*cell)[best.value] || *(*cell)[kRefused] > 0) continue;
      if (!found || best.sign * *(*cell)[best.value] < best.sign * *(*found)[best.value]) found = cell;
    }
    if (!found) continue;
    const results::Row& row = *found;
    text += (text.empty() ? "" : " ") + std::string(best.words) + ": " + row_name(row) +
            (row[kRoom] == "all" ? "" : ", room " + row[kRoom]) + (row[kSharing] == "on" ? ", sharing" : "") +
            ", " + with_interval(row, best.value, "%.3g") + best.unit + ".";
  }
  return text;
}

// "0.202/0.293/0.358": p50, p90 and p99.
std::string three(const results::Number& p50, const results::Number& p90, const results::Number& p99) {
  return number(p50, "%.3g") + "/" + number(p90, "%.3g") + "/" + number(p99, "%.3g");
}

}  // namespace

constexpr std::array kOwnOfServe{ColumnGroup{kServeColumns}, ColumnGroup{planner::kServedClockColumns}};
constexpr auto kServeGroups = joined(kOfCells, kOfModelRuns, kOwnOfServe);
constexpr const results::Table* kServeTables[] = {&kMoments};

const TableColumn kServeTable[] = {
    {"requests/s", shown<kRequestsPerS, "%.3g">},
    {"good/s", shown<kGoodputPerS, "%.3g">},
    {kServedTokensPerS.heading, shown<kServedTokensPerS, "%.4g">},
    {"TTFT p50/90/99, s",
     [](const results::Row& row) { return three(row[kTtftP50S], row[kTtftP90S], row[kTtftP99S]); }},
    {"TPOT p50/90/99, ms",
     [](const results::Row& row) { return three(row[kTpotP50Ms], row[kTpotP90Ms], row[kTpotP99Ms]); }},
    {"held", [](const results::Row& row) {
       return row[kHeldPeakBytes] ? io::human_bytes(*row[kHeldPeakBytes]) : "-";
     }}};

constinit const Experiment kServe{
    .info =
        {.name = "serve",
         .help =
             "a trace's or drawn requests served by a model over real caches: continuous and static batches",
         .axes = kServeAxes,
         .keys = kServeKeys,
         .needs_model = true},
    .place = place_served,
    .check = check_serve,
    .columns = kServeGroups,
    .tables = kServeTables,
    .table = kServeTable,
    .sentence = best_server,
    .plan = plan_serve,
    .run = run_serve};

}  // namespace kv::experiments
