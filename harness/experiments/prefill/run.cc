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
#include <map>

#include "harness/config/key.h"
#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/prefill/check.h"
#include "harness/experiments/score_attention.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/math/medians.h"
#include "harness/measure/compare_cells.h"
#include "harness/measure/time_columns.h"
#include "harness/measure/timed_tasks.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/error_columns.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

const config::Key<std::vector<int64_t>> kChunkKey{
    "chunk", config::SharedTable::kSweep, {512}, config::token_list(), "tokens of a chunk"};
const config::Key<bool> kUnmaskedKey{"unmasked", config::SharedTable::kMeasure, false, config::flag(),
                                     "true: also measures without a causal mask"};

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

// The arm that a row names.
Arm arm_of(const measure::SweepPoint& point, const results::Row& row) {
  const std::vector<Arm> all = arms(point);
  return *std::ranges::find_if(all, [&](const Arm& arm) {
    return row[results::kArm] == arm.name && (arm.whole || row[results::kChunkTokens] == arm.step);
  });
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

measure::PlannedCell& add_arm(measure::SweepPoint& point, const LayerSpecs& spec, const Arm& arm,
                              const std::string& suffix) {
  measure::PlannedCell& cell = add_cell(point, spec, suffix);
  cell.columns[results::kArm] = arm.name;
  if (!arm.whole) cell.columns[results::kChunkTokens] = arm.step;
  if (arm.by_cache) return cell;
  if (spec.any([](const Spec& s) { return retention_of(s).scores; }))
    refuse(cell, "its eviction depends on its own attention, which only the chunked and tiled arms run");
  if (point.context->gpu())
    refuse(cell, "the CPU computes its scores; with --device cuda only chunked and tiled run");
  return cell;
}

// The variants' arms in order, the A/A test next to its original.
void plan_prefill(measure::SweepPoint& point) {
  for (const LayerSpecs& spec : point.experiment->axes.variants) {
    for (const Arm& arm : arms(point)) {
      add_arm(point, spec, arm, suffix(arm));
      if (point.cells.size() == 1 && point.experiment->measure.aa_test)
        add_arm(point, spec, arm, aa_suffix(suffix(arm))).aa_test = true;
    }
  }
  fit_alone(point, [&](const measure::PlannedCell& cell) {
    return needed_bytes(point, cell.spec, arm_of(point, cell.columns));
  });
}

class PrefillTrial : public Trial {
 public:
  using Trial::Trial;

 private:
  void identify(measure::Cell& cell) override { cell.result[results::kPhase] = "prefill"; }

  // Verifies and accounts, and leaves the prompt ready to be timed.
  void prepare(measure::Cell& cell) override {
    const Arm arm = arm_of(point(), cell.result);
    cell.workload = point().source->workload(cell.spec, point().seq_len);
    std::vector<Prompt>& prompts = prompts_[&cell];
    for (int i = 0; i < point().batch; ++i) {
      for (int layer = 0; layer < layers(); ++layer)
        prompts.emplace_back(*cell.workload, i, layer, point().seq_len, arm.step);
    }
    open(cell);
    PromptCheck check(cell, prompts, arm.by_cache, arm.causal);
    read(cell, [&](int sequence, size_t chunk) {
      if (sequence == 0) check.add(chunk);
    });
    cell.result[results::kKernel] = arm.by_cache ? cell.cache->kernel() : "eigen/f32";
    cell.prompt = arm.step;
    cell.account(std::vector<int64_t>(cell.ids.size(), point().seq_len));
    record(cell, check.finish(), arm.by_cache);
    close(cell);
  }

  // Each time into a new cache; a short prompt repeats within a repetition.
  void add_tasks(measure::Cell& cell, measure::TimedTasks& tasks) override {
    constexpr int64_t kTokens = 2048;  // about as many a repetition
    const auto step = [this, &cell] {
      open(cell);
      measure::Stopwatch watch;
      read(cell, nullptr);
      const double seconds = watch.lap();
      close(cell);
      return measure::StepTimes{.attend_us = seconds * 1e6};
    };
    tasks.push_back(measure::sampled(cell, cell.steps,
                                     {.kind = "prefill",
                                      .steps = std::clamp<int64_t>(kTokens / tokens(), 1, 16),
                                      .step = step,
                                      .repeats = true},
                                     results()));
  }

  void summarise(measure::Cell& cell) override {
    const std::vector<double> times = measure::repetition_medians(cell.steps);
    const double p50 = math::median(times);
    results::Row& row = cell.result;
    row.set(measure::kPrefillP50Us, p50, math::median_interval(times));
    row[measure::kPrefillTokensPerS] = static_cast<double>(tokens()) / p50 * 1e6;
    row[measure::kRepetitions] = static_cast<int64_t>(times.size());
    row[measure::kSampleCount] = static_cast<int64_t>(times.size() * cell.steps.front().size());
  }

  // Each variant's arms with its own materialised arm, its first.
  void compare(const measure::Cells& cells) override {
    std::vector<measure::Comparison> comparisons;
    const measure::Cell* baseline = nullptr;
    for (const auto& cell : cells) {
      if (!baseline || !(cell->spec == baseline->spec)) baseline = cell.get();
      comparisons.push_back({cell.get(), baseline, kMaterialised});
    }
    measure::compare_cells(comparisons);
  }

  int layers() const { return point().source->shape().layers; }
  int64_t tokens() const { return point().batch * point().seq_len; }

  void open(measure::Cell& cell) const {
    cell.ledger = std::make_unique<memory::Ledger>(point().cache_bytes, point().context->gpu());
    cell.cache = build_cache(cell.spec, measure::cache_shape(point(), point().batch), *cell.ledger);
    fill(cell, point(), 0);
  }
  static void close(measure::Cell& cell) {
    cell.cache.reset();
    cell.ids.clear();
  }

  // One sequence after another, each chunk through all layers.
  void read(measure::Cell& cell, const std::function<void(int sequence, size_t chunk)>& done) {
    const Arm arm = arm_of(point(), cell.result);
    std::vector<Prompt>& prompts = prompts_.at(&cell);
    for (int i = 0; i < point().batch; ++i) {
      const size_t chunks = prompts.front().chunks.size();
      for (size_t c = 0; c < chunks; ++c) {
        for (int layer = 0; layer < layers(); ++layer)
          step(cell, arm, prompts[static_cast<size_t>(i * layers() + layer)], c, layer, cell.ids[i]);
        if (done) done(i, c);
      }
    }
  }

  void step(measure::Cell& cell, const Arm& arm, Prompt& prompt, size_t chunk, int layer,
            SequenceId id) const {
    Prompt::Chunk& c = prompt.chunks[chunk];
    const StepInput in{.sequence = id,
                       .n = c.n,
                       .q = c.q.data(),
                       .k = c.k.data(),
                       .v = c.v.data(),
                       .out = arm.by_cache ? c.out.data() : nullptr};
    cell.cache->step(layer, {&in, 1});
    if (arm.by_cache) return;
    attend_with_scores({.q = c.q.data(),
                        .out = c.out.data(),
                        .k = prompt.k.data(),
                        .v = prompt.v.data(),
                        .first = c.first,
                        .n = c.n,
                        .tokens = point().seq_len,
                        .causal = arm.causal},
                       point().source->shape(), *cell.ledger);
  }

  static void record(measure::Cell& cell, const verify::Errors& errors, bool by_cache) {
    if (!by_cache) return measure::judge_whole(cell, errors);
    measure::set_errors(cell.result, errors);
    const std::string failure = errors.failure();
    if (!failure.empty()) return measure::mark(cell, results::Status::kFailed, failure);
    cell.result[results::kStatus] = results::Status::kOk;
  }

  std::map<const measure::Cell*, std::vector<Prompt>> prompts_;  // [sequences, layers] each
};

}  // namespace

constexpr const config::AnyKey* kPrefillKeys[] = {&kChunkKey, &kUnmaskedKey};
constexpr auto kPrefillGroups =
    joined(kOfCells, results::kArmColumns, measure::kPromptColumns, kOfOutputs, kOfComparisons);
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
    .run = measured<PrefillTrial>};

}  // namespace kv::experiments
