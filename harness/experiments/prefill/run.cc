// The prefill experiment: a whole prompt into an empty cache, five ways.
//
//   materialised          scores of all tokens against all in memory at once: O(S^2) workspace
//   materialised_chunked  chunks of C tokens, scores of one chunk in memory: O(C S)
//   materialised_unmasked materialised without a causal mask: every token sees the whole prompt, as in encoders and
//                         prefix models; only if `unmasked` asks for it
//   chunked               the cache's own attention, C tokens a step: O(1)
//   tiled                 the same with the whole prompt in one step: scores never leave a tile
//
// All store the prompt in the variant's cache. Materialised arms attend to the prompt's own rows, as frameworks do;
// the others to the rows as stored. Times cover storing and attending together.
#include <algorithm>
#include <functional>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/prefill/axes.h"
#include "harness/experiments/prefill/check.h"
#include "harness/experiments/score_attention.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/math/medians.h"
#include "harness/measure/compare_cells.h"
#include "harness/measure/sample_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/measure/timed_tasks.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/error_columns.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

struct Arm {
  const char* name;
  bool by_cache;      // by the cache's own attention, to the rows as stored
  int64_t step;       // tokens a step; without the cache, scores in memory at once
  bool whole = true;  // the prompt is one step
  bool causal = true;
};

constexpr const char* kMaterialised = "materialised";

// A chunk as long as the prompt would repeat the arm of the whole prompt.
std::vector<Arm> arms(const measure::SweepPoint& point) {
  std::vector<Arm> arms{{kMaterialised, false, point.seq_len}};
  if (point.experiment->settings[kUnmaskedKey])
    arms.push_back({"materialised_unmasked", false, point.seq_len, true, false});
  for (const int64_t chunk : point.experiment->settings[kChunkKey]) {
    if (chunk >= point.seq_len) continue;
    arms.push_back({"materialised_chunked", false, chunk, false});
    arms.push_back({"chunked", true, chunk, false});
  }
  arms.push_back({"tiled", true, point.seq_len});
  return arms;
}

std::string suffix(const Arm& arm) {
  return std::string(arm.name) + (arm.whole ? "" : " c" + std::to_string(arm.step));
}

// Bytes of the cache, the prompt with its outputs, and the scores. Floating point comes first, since the closed form
// in integers could overflow.
int64_t needed_bytes(const measure::SweepPoint& point, const LayerSpecs& spec, const Arm& arm) {
  const workload::WorkloadShape& s = point.source->shape();
  const double prompt = sizeof(float) * measure::value_count(point, 2.0 * s.q_heads + 4.0 * s.kv_heads,
                                                             static_cast<double>(point.seq_len));
  const double scores = arm.by_cache ? 0.0 : score_bytes(s, arm.step, point.seq_len);
  if (prompt + scores > 1e15) return static_cast<int64_t>(std::min(prompt + scores, 1e18));
  const std::vector<int64_t> lengths(static_cast<size_t>(point.batch), point.seq_len);
  return static_cast<int64_t>(prompt + scores) +
         predicted_bytes(spec, measure::cache_shape(point, point.batch), lengths);
}

measure::PlannedCell& add_arm(measure::SweepPoint& point, const LayerSpecs& spec, size_t arm,
                              const std::string& suffix) {
  measure::PlannedCell& cell = add_cell(point, spec, suffix);
  cell.arm = arm;
  if (cell.is_measured() && !arms(point)[arm].by_cache &&
      spec.any([](const Spec& s) { return retention_of(s).scores; })) {
    cell.status = results::Status::kUnsupported;
    cell.reason = "its eviction depends on its own attention, which only the chunked and tiled arms run";
  }
  if (cell.is_measured() && !arms(point)[arm].by_cache && point.context->gpu()) {
    cell.status = results::Status::kUnsupported;
    cell.reason = "the CPU computes its scores; with --device cuda only chunked and tiled run";
  }
  return cell;
}

// The variants' arms in order, the A/A test next to its original.
void plan_prefill(measure::SweepPoint& point) {
  for (const LayerSpecs& spec : point.experiment->axes.variants) {
    const std::vector<Arm> all = arms(point);
    for (size_t arm = 0; arm < all.size(); ++arm) {
      add_arm(point, spec, arm, suffix(all[arm]));
      if (point.cells.size() == 1 && point.experiment->measure.aa_test)
        add_arm(point, spec, arm, aa_suffix(suffix(all[arm]))).aa_test = true;
    }
  }
  fit_alone(point, [&](const measure::PlannedCell& cell) {
    return needed_bytes(point, cell.spec, arms(point)[cell.arm]);
  });
}

class PrefillCell {
 public:
  PrefillCell(const measure::SweepPoint& point, const measure::PlannedCell& planned)
      : point_(point), arm_(arms(point)[planned.arm]), cell_(measure::make_cell(point, planned)) {
    results::Row& row = cell_->result;
    row[results::kPhase] = "prefill";
    row[results::kArm] = arm_.name;
    if (!arm_.whole) row[results::kChunkTokens] = arm_.step;
  }

  measure::Cell& cell() { return *cell_; }
  int64_t tokens() const { return point_.batch * point_.seq_len; }

  // Verifies and accounts, and leaves the prompt ready to be timed.
  void prepare() {
    measure::attempt(*cell_, [&] {
      cell_->workload = point_.source->workload(cell_->spec, point_.seq_len);
      for (int i = 0; i < point_.batch; ++i) {
        for (int layer = 0; layer < point_.source->shape().layers; ++layer)
          prompts_.emplace_back(*cell_->workload, i, layer, point_.seq_len, arm_.step);
      }
      open();
      PromptCheck check(*cell_, prompts_, arm_.by_cache, arm_.causal);
      run([&](int sequence, size_t chunk) {
        if (sequence == 0) check.add(chunk);
      });
      cell_->result[results::kKernel] = arm_.by_cache ? cell_->cache->kernel() : "eigen/f32";
      cell_->prompt = arm_.step;
      cell_->account(std::vector<int64_t>(cell_->ids.size(), point_.seq_len));
      record(check.finish());
    });
    close();
  }

  void open() {
    cell_->ledger = std::make_unique<memory::Ledger>(point_.cache_bytes, point_.context->gpu());
    cell_->cache = build_cache(cell_->spec, measure::cache_shape(point_, point_.batch), *cell_->ledger);
    for (int i = 0; i < point_.batch; ++i) cell_->ids.push_back(cell_->cache->add_sequence());
  }
  void close() {
    cell_->cache.reset();
    cell_->ids.clear();
  }

  // One sequence after another, each chunk through all layers.
  void run(const std::function<void(int sequence, size_t chunk)>& done = nullptr) {
    const int layers = point_.source->shape().layers;
    for (int i = 0; i < point_.batch; ++i) {
      const size_t chunks = prompts_.front().chunks.size();
      for (size_t c = 0; c < chunks; ++c) {
        for (int layer = 0; layer < layers; ++layer) step(prompt(i, layer), c, layer, cell_->ids[i]);
        if (done) done(i, c);
      }
    }
  }

  // Fills the time columns.
  void summarise() {
    if (cell_->steps.empty()) return;
    const std::vector<double> times = measure::step_medians(*cell_);
    const double p50 = math::median(times);
    const math::ConfidenceInterval interval = math::median_interval(times);
    results::Row& row = cell_->result;
    row.set(measure::kPrefillP50Us, p50, interval);
    row[measure::kPrefillTokensPerS] = static_cast<double>(tokens()) / p50 * 1e6;
    row[measure::kRepetitions] = static_cast<int64_t>(times.size());
    row[measure::kSampleCount] = static_cast<int64_t>(times.size() * cell_->steps.front().size());
  }

 private:
  Prompt& prompt(int sequence, int layer) {
    return prompts_[static_cast<size_t>(sequence * point_.source->shape().layers + layer)];
  }

  void step(Prompt& prompt, size_t chunk, int layer, SequenceId id) {
    Prompt::Chunk& c = prompt.chunks[chunk];
    const StepInput in{.sequence = id,
                       .n = c.n,
                       .q = c.q.data(),
                       .k = c.k.data(),
                       .v = c.v.data(),
                       .out = arm_.by_cache ? c.out.data() : nullptr};
    cell_->cache->step(layer, {&in, 1});
    if (arm_.by_cache) return;
    attend_with_scores({.q = c.q.data(),
                        .out = c.out.data(),
                        .k = prompt.k.data(),
                        .v = prompt.v.data(),
                        .first = c.first,
                        .n = c.n,
                        .tokens = point_.seq_len,
                        .causal = arm_.causal},
                       point_.source->shape(), *cell_->ledger);
  }

  void record(const verify::Errors& errors) {
    if (arm_.by_cache) {
      measure::set_errors(cell_->result, errors);
    } else {
      cell_->result.number("err_rel_l2") = errors.metric("err_rel_l2");
      cell_->result[verify::kErrKernelRelL2] = errors.kernel_rel_l2;
    }
    const std::string failure = errors.failure();
    if (!failure.empty()) return measure::mark(*cell_, results::Status::kFailed, failure);
    cell_->result[results::kStatus] = results::Status::kOk;
  }

  const measure::SweepPoint& point_;
  const Arm arm_;
  std::unique_ptr<measure::Cell> cell_;
  std::vector<Prompt> prompts_;  // [sequences, layers]
};

// A prompt into a new cache; a short prompt repeats within a repetition.
class PrefillTask : public measure::CellTask {
 public:
  PrefillTask(PrefillCell& prefill, results::ResultsFolder& results)
      : CellTask(prefill.cell()), prefill_(prefill), results_(results) {}
  std::string name() const override { return cell_.key; }
  int iterations() const override {
    return static_cast<int>(std::clamp<int64_t>(kTokens / prefill_.tokens(), 1, 16));
  }
  void begin(int repetition) override {
    repetition_ = repetition;
    times_.clear();
  }
  double run() override {
    prefill_.open();
    measure::Stopwatch watch;
    prefill_.run();
    const double seconds = watch.lap();
    prefill_.close();
    times_.push_back({.append_us = 0.0, .view_us = 0.0, .attend_us = seconds * 1e6});
    return seconds;
  }
  bool discard() override { return true; }
  void end() override {
    std::vector<results::Row> rows;
    for (size_t i = 0; i < times_.size(); ++i) {
      rows.push_back(measure::sample_of(cell_, repetition_, i, "prefill"));
      rows.back()[measure::kStepUs] = times_[i].step_us();
    }
    results_.add(measure::kSamples, rows);
    cell_.steps.push_back(times_);
  }

 private:
  PrefillCell& prefill_;
  results::ResultsFolder& results_;
  static constexpr int64_t kTokens = 2048;  // about as many a repetition

  int repetition_ = 0;
  std::vector<measure::StepTimes> times_;
};

using PrefillCells = std::vector<std::unique_ptr<PrefillCell>>;

// Returns false if stopped.
bool time_prefill(const measure::SweepPoint& point, const measure::RunControl& control,
                  results::ResultsFolder& results, const PrefillCells& cells) {
  std::vector<std::unique_ptr<measure::TimedTask>> tasks;
  for (const auto& c : cells) {
    if (measure::runs(c->cell())) tasks.push_back(std::make_unique<PrefillTask>(*c, results));
  }
  return measure::run_interleaved(tasks, point.experiment->measure.repetitions, control.stop);
}

std::vector<results::Row> run_prefill(const measure::SweepPoint& point, const measure::RunControl& control,
                                      results::ResultsFolder& results) {
  PrefillCells cells;
  for (const measure::PlannedCell& planned : point.cells)
    cells.push_back(std::make_unique<PrefillCell>(point, planned));
  for (const auto& c : cells) {
    if (control.stop()) return {};
    if (measure::runs(c->cell())) c->prepare();
  }
  if (!time_prefill(point, control, results, cells)) return {};
  std::vector<measure::Comparison> comparisons;
  PrefillCell* baseline = nullptr;
  for (const auto& c : cells) {
    // Each variant's arms are compared with its own materialised arm, its first.
    if (!baseline || !(c->cell().spec == baseline->cell().spec)) baseline = c.get();
    c->summarise();
    comparisons.push_back({&c->cell(), &baseline->cell(), kMaterialised});
  }
  measure::compare_cells(comparisons);
  std::vector<results::Row> rows;
  for (const auto& c : cells) rows.push_back(c->cell().result);
  return rows;
}

}  // namespace

constexpr const config::AnyKey* kPrefillKeys[] = {&kChunkKey, &kUnmaskedKey};
constexpr std::array kOwnOfPrefill{ColumnGroup{results::kArmColumns}, ColumnGroup{measure::kPromptColumns}};
constexpr auto kPrefillGroups = joined(kOfCells, kOwnOfPrefill, kOfOutputs, kOfComparisons);
constexpr const results::Table* kPrefillTables[] = {&measure::kSamples};

const TableColumn kPrefillTable[] = {
    {results::kBytesWorkspacePeak.heading,
     [](const results::Row& row) { return io::human_bytes(row[results::kBytesWorkspacePeak].value_or(0)); }},
    {measure::kPrefillP50Us.heading, estimated<measure::kPrefillP50Us, "%.0f">, ", us (95 %)"},
    {measure::kPrefillTokensPerS.heading, shown<measure::kPrefillTokensPerS, "%.0f">},
    kErrorText,
    kRatioText};

constinit const Experiment kPrefill{
    .info = {.name = "prefill",
             .help = "a whole prompt: scores materialised, in chunks, and tiled",
             .keys = kPrefillKeys},
    .fixed_tokens = 4000.0,
    .columns = kPrefillGroups,
    .tables = kPrefillTables,
    .table = kPrefillTable,
    .plan = plan_prefill,
    .run = run_prefill};

}  // namespace kv::experiments
