// The batch experiment: ragged lengths, and the bytes that each variant reserves and does not use.
#include <algorithm>

#include "harness/config/key.h"
#include "harness/config/request_lengths.h"
#include "harness/experiments/batch/padding.h"
#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"
#include "harness/measure/compare_cells.h"
#include "harness/measure/timed_tasks.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/error_columns.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

const config::Axis<std::string> kLengthsAxis{kLengths,
                                             "lengths",
                                             config::SharedTable::kSweep,
                                             {},
                                             config::text_list(config::check_lengths),
                                             "tokens of each sequence: a list, or how they are drawn",
                                             "lengths = [\"16,32,500\", \"uniform(16,512)\"]"};
const config::Key<bool> kPaddingKey{"padding", config::SharedTable::kMeasure, false, config::flag(),
                                    "true: also times padding to the longest length"};

// Sets default pools; specs that differ from layer to layer keep their own.
LayerSpecs fitted(const measure::SweepPoint& point, const LayerSpecs& written, int times) {
  if (!written.is_one()) return written;
  return with_fitting_pool(written.fallback, measure::cache_shape(point, times * point.batch), point.tokens,
                           times);
}

// Bytes of the larger of the two caches. Floating point comes first, since the closed form in integers could
// overflow.
int64_t needed_bytes(const measure::SweepPoint& point, const LayerSpecs& written) {
  const double padded = sizeof(float) * measure::value_count(point, 2.0 * point.source->shape().kv_heads,
                                                             static_cast<double>(point.seq_len));
  if (padded > 1e15) return static_cast<int64_t>(std::min(padded, 1e18));
  std::vector<int64_t> twice(point.tokens);
  twice.insert(twice.end(), point.tokens.begin(), point.tokens.end());
  return predicted_bytes(fitted(point, written, 2), measure::cache_shape(point, 2 * point.batch), twice);
}

// All cells are timed side by side.
void plan_batch(measure::SweepPoint& point) {
  add_variants_and_aa_test(point, point.axes[kLengths]);
  if (point.experiment->settings[kPaddingKey]) add_padding_arms(point);
  int64_t held = 0;
  for (measure::PlannedCell& cell : point.cells) {
    if (!cell.is_measured()) continue;
    const int64_t needed = needed_bytes(point, cell.spec);
    if (fit(point, cell, held + needed)) held += needed;
  }
  point.peak_bytes = held;
}

class BatchTrial : public Trial {
 public:
  BatchTrial(const measure::SweepPoint& point, const measure::RunControl& control,
             results::ResultsFolder& results)
      : Trial(point, control, results) {
    // All sequences take the same number of timed steps, so the shortest limits it.
    steps_ = std::min<int64_t>(point.experiment->measure.steps,
                               *std::min_element(point.tokens.begin(), point.tokens.end()));
    for (const int64_t tokens : point.tokens) prompts_.push_back(tokens - steps_);
  }

 private:
  // Builds a cache for the batch alone, which is verified and accounted, and then one with room for the forks of the
  // timed steps.
  void prepare(measure::Cell& cell) override {
    const LayerSpecs written = cell.spec;
    cell.workload = point().source->workload(written, point().seq_len);
    start(cell, written, 1);
    cell.ledger->reset_peaks();
    for (int64_t t = 0; t < steps_; ++t) cell.step(feed(cell), t, cell.ids, true);
    account(cell);
    set_waste(cell.result);
    is_padding_arm(cell)
        ? measure::judge_whole(cell, check_padded(cell, feed(cell), steps_ - 1, point().tokens))
        : check(cell);
    if (measure::runs(cell)) start(cell, written, 2);
  }
  void add_tasks(measure::Cell& cell, measure::TimedTasks& tasks) override {
    tasks.push_back(measure::step_task(cell, feed(cell), 0, steps_, results()));
  }
  void compare(const measure::Cells& cells) override {
    std::vector<measure::Comparison> comparisons;
    for (const auto& cell : cells) {
      // The padded arm's baseline is the same attention without padding.
      const measure::Cell* baseline = is_padded(*cell) ? std::prev(&cell)->get() : cells.front().get();
      comparisons.push_back({cell.get(), baseline, baseline->result[results::kVariant]});
    }
    measure::compare_cells(comparisons);
  }

  // Opens a cache with room for the batch `times` over and fills it up to the timed steps.
  void start(measure::Cell& cell, const LayerSpecs& written, int times) {
    cell.attend_with = nullptr;
    cell.cache.reset();
    cell.ids.clear();
    cell.ledger = std::make_unique<memory::Ledger>(point().cache_bytes, point().context->gpu());
    cell.spec = fitted(point(), written, times);
    cell.cache = build_cache(cell.spec, cache_shape(point(), times * point().batch), *cell.ledger);
    cell.result[results::kKernel] = is_padding_arm(cell) ? "eigen/f32" : cell.cache->kernel();
    const std::vector<int64_t> padding = padding_of(point(), cell);
    if (is_padding_arm(cell)) cell.attend_with = score_attention(*cell.cache, padding, *cell.ledger);
    for (int i = 0; i < point().batch; ++i) {
      cell.ids.push_back(cell.cache->add_sequence());
      append_padding(*cell.cache, cell.ids.back(), padding[static_cast<size_t>(i)]);
      workload::prefill(*cell.cache, *cell.workload, {&cell.ids.back(), 1}, 0,
                        prompts_[static_cast<size_t>(i)], i);
    }
  }

  // Padding rows are held and read like others, but count as slack.
  void account(measure::Cell& cell) const {
    std::vector<int64_t> lengths = point().tokens, prompts = prompts_;
    const std::vector<int64_t> padding = padding_of(point(), cell);
    int64_t padded = 0, all = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      lengths[i] += padding[i];
      prompts[i] += padding[i];
      padded += padding[i];
      all += lengths[i];
    }
    cell.account(lengths, prompts);
    if (!is_padded(cell)) return;
    const CacheShape& s = cell.cache->shape();
    const int64_t bytes =
        padded * s.layers * s.kv_heads * s.head_dim * 2 * static_cast<int64_t>(sizeof(float));
    *cell.result[results::kBytesPayload] -= bytes;
    *cell.result[results::kBytesSlack] += bytes;
    cell.result[kMaskedShare] = static_cast<double>(padded) / static_cast<double>(all);
  }

  workload::TokenFeed& feed(const measure::Cell& cell) { return Trial::feed(cell, 0, steps_, prompts_); }

  // Checks every sequence at its own length; the columns get the worst.
  void check(measure::Cell& cell) {
    verify::Errors worst;
    for (int i = 0; i < point().batch; ++i) {
      const verify::Errors errors =
          cell.errors(feed(cell), point().tokens[static_cast<size_t>(i)], i, i + 1, steps_ - 1);
      if (const std::string failure = errors.failure(); !failure.empty()) {
        return measure::mark(cell, results::Status::kFailed,
                             "sequence " + std::to_string(i) + ": " + failure);
      }
      if (i == 0 || errors.metric("err_rel_l2") > worst.metric("err_rel_l2")) worst = errors;
    }
    measure::set_errors(cell.result, worst);
    cell.result[results::kStatus] = results::Status::kOk;
  }

  static void set_waste(results::Row& row) {
    const auto slack = static_cast<double>(*row[results::kBytesSlack]);
    row[kWasteShare] =
        slack / (static_cast<double>(*row[results::kBytesPayload] + *row[results::kBytesMetadata]) + slack);
  }

  int64_t steps_;
  std::vector<int64_t> prompts_;  // tokens of each sequence before the timed steps
};

// A list is the same batch for every value of the axis.
bool place_lengths(measure::SweepPoint& point) {
  const std::string& lengths = point.axes[kLengths];
  if (config::is_length_list(lengths) && point.batch != point.experiment->settings[config::kBatch].front())
    return false;
  point.tokens = config::draw_lengths(lengths, point.batch, point.config->seed);
  point.batch = static_cast<int>(point.tokens.size());
  point.seq_len = *std::max_element(point.tokens.begin(), point.tokens.end());
  return true;
}

constexpr const config::AnyAxis* kBatchAxes[] = {&config::kBatch, &kLengthsAxis};
constexpr const config::AnyKey* kBatchKeys[] = {&kPaddingKey};

}  // namespace

Spec with_fitting_pool(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                       int times) {
  const std::optional<PoolSettings> pool = pool_settings(spec);
  if (!pool || pool->blocks > 0) return spec;
  const int64_t block = pool->block_rows;
  int64_t blocks = 0;
  for (const int64_t tokens : lengths) {
    // A prompt that is cut is first stored whole.
    for (int64_t rows : placed_rows(spec, shape, tokens)) {
      if (retention_of(spec).cuts_prompt) rows = tokens;
      blocks += (rows + block - 1) / block;
    }
  }
  return with_pool(spec, std::max<int64_t>(1, blocks * shape.layers * times));
}

constexpr auto kBatchGroups = joined(kOfCells, kOfSteps, kBatchColumns, kOfOutputs, kOfComparisons);
constexpr const results::Table* kBatchTables[] = {&measure::kSamples};

const TableColumn kBatchTable[] = {
    kHeldText,
    kStepText,
    {"waste", [](const results::Row& row) { return percent(row[kWasteShare]); }},
    kErrorText,
    kRatioText};

constinit const Experiment kBatch{.info = {.name = "batch",
                                           .help = "ragged batches: bytes lost to padding and fragmentation",
                                           .axes = kBatchAxes,
                                           .keys = kBatchKeys},
                                  .derive_point = place_lengths,
                                  .fixed_tokens = 4000.0,
                                  .columns = kBatchGroups,
                                  .tables = kBatchTables,
                                  .table = kBatchTable,
                                  .plan = plan_batch,
                                  .run = measured<BatchTrial>};

}  // namespace kv::experiments
