// The serve experiment: requests served by a model over each variant's caches in wall-clock time. Every answer is checked
// against the one that its request gets alone before any time counts.
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <stdexcept>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/reading_run.h"
#include "harness/experiments/requests.h"
#include "harness/experiments/serve/check.h"
#include "harness/experiments/serve/columns.h"
#include "harness/experiments/serve/servers.h"
#include "harness/experiments/serve/serving.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/measure/timed_tasks.h"
#include "harness/planner/serving_row.h"
#include "variants/cache/prefill.h"

namespace kv::experiments {
namespace {

using config::SharedTable;
constexpr double kMostScale = 1e6;

void check_room(const std::string& text) {
  if (text != "all") io::parse_bytes(text, "room");
}

void check_sharing(const std::string& text) {
  if (text != "on" && text != "off")
    throw std::invalid_argument("'" + text + "' is neither \"on\" nor \"off\"");
}

// "whole" and "static" have no limit of a step's tokens.
planner::SchedulerSettings scheduler_of(const std::string& batching) {
  planner::SchedulerSettings settings{.step_tokens = config::kMaxTokens, .lockstep = batching == "static"};
  if (settings.lockstep || batching == "whole") return settings;
  const char* const end = batching.data() + batching.size();
  const auto [at, error] = std::from_chars(batching.data(), end, settings.step_tokens);
  if (error != std::errc() || at != end || settings.step_tokens < 1 ||
      settings.step_tokens > config::kMaxTokens)
    throw std::invalid_argument("batching '" + batching +
                                "' is neither \"static\", \"whole\" nor the tokens of a step, as \"128\"");
  return settings;
}

void check_batching(const std::string& text) { scheduler_of(text); }

const config::Axis<std::string> kRoomAxis{
    kRoom,
    "room",
    SharedTable::kOwn,
    {"all"},
    config::text_list(check_room),
    "memory for caches; all: for max_running requests of the whole context"};
const config::Axis<std::string> kSharingAxis{kSharing,
                                             "sharing",
                                             SharedTable::kOwn,
                                             {"off"},
                                             config::text_list(check_sharing),
                                             "on: prompts that begin alike share blocks of rows"};
const config::Key<std::vector<std::string>> kBatchingKey{
    "batching",
    SharedTable::kOwn,
    {"whole"},
    config::text_list(check_batching),
    "static, whole, or the most tokens of a step of continuous batches"};
const config::Key<int64_t> kContextTokensKey{"context", SharedTable::kOwn, 0,
                                             config::tokens(0, config::kMaxTokens),
                                             "longest request; 0: what the model was trained for"};
const config::Key<double> kLengthScaleKey{"length_scale", SharedTable::kOwn, 1.0,
                                          config::number(1.0 / kMostScale, kMostScale),
                                          "tokens of a request here / in the trace"};
const config::Key<double> kRateScaleKey{"rate_scale", SharedTable::kOwn, 1.0,
                                        config::number(1.0 / kMostScale, kMostScale),
                                        "requests a second here / in the trace"};

constexpr const config::AnyAxis* kServeAxes[] = {&kTraceAxis, &kArrivalsAxis, &kRoomAxis, &kSharingAxis};
constexpr const config::AnyKey* kServeKeys[] = {
    &kServersKey,    &kUsersKey,         &kBatchingKey,      &kContextTokensKey, &kLengthScaleKey,
    &kRateScaleKey,  &kPromptLengthsKey, &kOutputLengthsKey, &kPrefixKey,        &kRequestsKey,
    &kMaxRunningKey, &kWatermarkKey,     &kLimitKey};

constexpr int64_t kRequestsToServe = 64;
constexpr double kCheckStepS = 1e-3;  // of a step of the run that is checked, so that it is always the same

bool place_served(measure::SweepPoint& point) {
  const config::Settings& s = settings_of(point);
  set_arrivals(point);
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

// `draw`: of the prompts' tokens; lengths and arrivals are the same in all.
std::vector<ServedRequest> requests_to_serve(const measure::SweepPoint& point, uint64_t draw = 0) {
  const config::Settings& s = settings_of(point);
  return with_prompts(requests_of(point, kRequestsToServe)(), {s[kLengthScaleKey], s[kRateScaleKey]},
                      point.source->text(), point.config->seed + draw);
}

void check_serve(const measure::SweepPoint& point) {
  check_length(point, point.seq_len, "context");
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument(config_prefix(point) + what);
  };
  if (point.source->text().empty()) refuse("needs a text to cut prompts from: give workload.text");
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
    for (const std::string& batching : batchings) {
      measure::PlannedCell& cell = add_cell(point, spec, "batching " + batching);
      cell.columns[kBatching] = batching;
      if (cell.is_measured()) refuse(cell, unserved_reason(point, spec));
    }
  }
  add_servers(point);
  fit_alone(point, [&](const measure::PlannedCell& cell) {
    return cell.peer.empty() ? room_of(point, cell.spec, point.seq_len).bytes : 0;
  });
}

// A cell's server of requests, and its answers.
struct Served {
  ServingSetup setup;
  std::unique_ptr<ServerCell> server = {};  // a running one, in place of ours
  const std::vector<std::vector<int>>* alone = nullptr;
  std::vector<ServedRun> runs = {};
};

class ServeTask : public measure::CellTask {
 public:
  ServeTask(measure::Cell& cell, std::function<double()> run, std::function<void()> end)
      : CellTask(&cell), run_(std::move(run)), end_(std::move(end)) {}
  int iterations() const override { return 1; }
  void begin(int) override {}
  double run() override { return run_(); }
  void end() override { end_(); }

 private:
  const std::function<double()> run_;
  const std::function<void()> end_;
};

class ServeTrial : public Trial {
 public:
  ServeTrial(const measure::SweepPoint& point, const measure::RunControl& control,
             results::ResultsFolder& results)
      : Trial(point, control, results),
        facts_(planner::read_facts(requests_of(point, kRequestsToServe), {})),
        requests_(requests_to_serve(point)),
        progress_(control, static_cast<double>(point.cells.size()) *
                               (1.0 + static_cast<double>(point.experiment->measure.repetitions))) {}

 private:
  void identify(measure::Cell& cell) override {
    results::Row& row = cell.result;
    const config::Settings& s = settings();
    Served& served = served_[&cell];
    planner::set_requests(row, facts_);
    row[kTraceFile].clear();
    if (cell.peer.empty()) {
      served.setup = setup_of(cell);
      row[kRoomBytes] = served.setup.room.bytes;
    }
    row[kLengthScale] = s[kLengthScaleKey];
    row[kRateScale] = s[kRateScaleKey];
    set_limits(point(), row);
    if (!measure::runs(cell)) progress_.add(1.0);
  }

  ServingSetup setup_of(const measure::Cell& cell) const {
    ServingSetup setup{.model = point().source->model(),
                       .spec = cell.spec,
                       .room = room_of(point(), cell.spec, std::max<int64_t>(1, facts_.typical)),
                       .scheduler = with_limits(point(), scheduler_of(cell.result[kBatching])),
                       .ledger_bytes = point().cache_bytes};
    if (measure::runs(cell) && point().axes[kSharing] == "on")
      setup.scheduler.share_tokens =
          shared_tokens(setup.spec, {geometry_of(setup.model->config()), setup.spec, setup.room});
    return setup;
  }

  // Serves once on a clock that is always the same, before any time counts.
  void prepare(measure::Cell& cell) override {
    Served& served = served_.at(&cell);
    if (!cell.peer.empty()) {
      served.server = std::make_unique<ServerCell>(cell, point());
      progress_.add(1.0);
      return;
    }
    auto& alone = alone_[cell.spec.print()];
    if (alone.empty()) alone = answers_alone(served.setup, requests_, control().stop);
    if (control().stop()) return;
    served.alone = &alone;
    const ServedRun run = serve(served.setup, requests_, control().stop, kCheckStepS);
    if (control().stop()) return;
    cell.result[results::kKernel] = run.kernel;
    if (run.result.refused == run.result.requests)
      measure::mark(cell, results::Status::kOutOfMemory, "no request fits, even alone");
    else
      check_run(cell, served, run);
    progress_.add(1.0);
  }

  // Fails the cell if a run's caches or answers are wrong.
  void check_run(measure::Cell& cell, const Served& served, const ServedRun& run) const {
    std::string failure = run.failure;
    if (failure.empty()) {
      const AnswerCheck check = check_answers(served.setup, requests_, *served.alone, run.answers);
      failure = check.failure;
      cell.result[kRoundedAnswers] = std::max(cell.result[kRoundedAnswers].value_or(0), check.rounded);
    }
    if (!failure.empty()) measure::mark(cell, results::Status::kFailed, failure);
  }

  void add_tasks(measure::Cell& cell, measure::TimedTasks& tasks) override {
    Served& served = served_.at(&cell);
    const auto run = [this, &served] {
      // A server may still have the last repetition's prompts: each has others.
      served.runs.push_back(served.server ? served.server->run(requests_to_serve(point(), served.runs.size()))
                                          : serve(served.setup, requests_, control().stop));
      return served.runs.back().result.seconds;
    };
    const auto end = [this, &cell, &served] {
      progress_.add(1.0);
      if (control().stop()) return;
      if (!served.server) return check_run(cell, served, served.runs.back());
      const planner::ReplayResult& r = served.runs.back().result;
      if (r.refused == r.requests) measure::mark(cell, results::Status::kFailed, served.server->error());
    };
    tasks.push_back(std::make_unique<ServeTask>(cell, run, end));
  }

  bool run_group(const Group& group) override {
    return Trial::run_group(group) && !control().stop();  // a run that was stopped means nothing
  }

  void summarise(measure::Cell& cell) override {
    if (control().stop()) return;
    const Served& served = served_.at(&cell);
    results::Row& row = cell.result;
    row[results::kStatus] = results::Status::kOk;
    if (served.server) return summarise_server(row, served);
    const planner::RowAllocator rows(geometry_of(served.setup.model->config()), served.setup.spec,
                                     served.setup.room);
    set_served(row, served.runs, rows);
    if (served.setup.scheduler.share_tokens > 0) row[kPrefixHitRate] = served.runs.front().result.hit_rate();
    set_replayed(row, served.setup, requests_, served.runs);
    results().add(kMoments, moment_rows(row, served.runs.front().result.timeline));
  }

  static void summarise_server(results::Row& row, const Served& served) {
    set_times(row, served.runs);
    row[kRefused] = 0;
    int64_t found = 0, prompts = 0;
    for (const ServedRun& run : served.runs) {
      row[kRequestErrors] = std::max(row[kRequestErrors].value_or(0), run.result.refused);
      found += run.result.found_tokens;
      prompts += run.result.prompt_tokens;
    }
    row[results::kReason] = served.server->error();
    if (served.server->tells_hits())
      row[kPrefixHitRate] = static_cast<double>(found) / static_cast<double>(prompts);
  }

  const planner::TraceFacts facts_;
  const std::vector<ServedRequest> requests_;
  std::map<const measure::Cell*, Served> served_;
  std::map<std::string, std::vector<std::vector<int>>> alone_;  // by spec
  measure::PointProgress progress_;
};

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

constexpr auto kServeGroups = joined(kOfCells, kOfModelRuns, kServeColumns, planner::kServedClockColumns,
                                     ColumnGroup{measure::kPeerColumns, asks_servers});
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
    .derive_point = place_served,
    .check = check_serve,
    .columns = kServeGroups,
    .tables = kServeTables,
    .table = kServeTable,
    .sentence = best_server,
    .plan = plan_serve,
    .run = measured<ServeTrial>};

}  // namespace kv::experiments
