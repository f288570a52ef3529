// The growth experiment: an empty cache grows to a length one token at a time; every step is recorded.
#include <algorithm>
#include <map>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/growth/axes.h"
#include "harness/experiments/growth/uncached_rows.h"
#include "harness/experiments/list.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/math/medians.h"
#include "harness/measure/time_columns.h"
#include "harness/measure/timed_tasks.h"
#include "harness/results/cell_columns.h"
#include "harness/results/estimate.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

constexpr auto kAppendTotalUs = results::estimate<"append_total_us", "append_total_ci_*_us">(
                                    "us",
                                    "growth: append + view of all steps from an empty cache on, "
                                    "reallocations included; median over repetitions",
                                    "95 % interval (Student's, over repetitions)")
                                    .called("all appends");
constexpr auto kAppendTotalRatio =
    results::estimate<"append_total_ratio_p50", "append_total_ratio_ci_*">(
        "1", "growth: append_total_us / that of `versus`, over the interleaved repetitions",
        "interval, so wide that all of the sweep point are right together with 95 % (Holm)")
        .called("all appends / baseline");
constexpr auto kGrowthColumns = results::column_list(kAppendTotalUs, kAppendTotalRatio);

constexpr results::IntegerColumn kToken{"token", "tokens", "tokens of a sequence after this step"};
constexpr results::IntegerColumn kBytesWorkspace{"bytes_workspace", "bytes",
                                                 "scratch buffers after this step"};
constexpr results::IntegerColumn kBytesMoved{"bytes_copied", "bytes",
                                             "bytes moved by growth and slicing since the first step"};

const results::Table kGrowthSteps{
    "growth.csv",
    {&results::kCell, &results::kVariant, &results::kBatch, &results::kSeqLen, &measure::kRepetition, &kToken,
     &measure::kAppendUs, &measure::kViewUs, &measure::kAttendUs, &measure::kStepUs, &results::kBytesPayload,
     &results::kBytesMetadata, &results::kBytesSlack, &kBytesWorkspace, &kBytesMoved, &results::kHost}};

constexpr int64_t kLoadedTokens = 256;  // loaded at a time

// Bytes held after each token, equal in every repetition.
struct GrowthBytes {
  int64_t payload = 0, metadata = 0, slack = 0, workspace = 0, copied = 0;
};

void plan_growth(measure::SweepPoint& point) {
  add_variants_and_aa_test(point);
  add_uncached(point);
  // Growing holds the old and the new buffer, and a slice; attention may read a copy.
  fit_side_by_side(point, shared_bytes(point, kLoadedTokens), [&](const measure::PlannedCell& cell) {
    if (cell.uncached) return UncachedRows::bytes(point);
    return 3 * measure::held_bytes(point, cell.spec) + measure::copied_bytes(point, cell.spec);
  });
}

// Append and view of all steps, one sum a repetition.
std::vector<double> append_totals(const measure::Cell& cell) {
  std::vector<double> totals;
  for (const std::vector<measure::StepTimes>& repetition : cell.steps) {
    double us = 0.0;
    for (const measure::StepTimes& step : repetition) us += step.append_us + step.view_us;
    totals.push_back(us);
  }
  return totals;
}

// The ratios of the totals to the first cell's, of the cells measured beside it.
void compare_totals(const measure::Cells& cells) {
  const measure::Cell& baseline = *cells.front();
  std::vector<measure::Cell*> compared;
  std::vector<math::Ratio> ratios;
  std::vector<double> p_values;
  for (const auto& cell : cells) {
    if (cell.get() == &baseline || cell->group != baseline.group || cell->steps.empty() ||
        baseline.steps.empty() || results::is_aa_test(cell->result))
      continue;
    compared.push_back(cell.get());
    ratios.push_back(math::ratio_of_medians(append_totals(*cell), append_totals(baseline)));
    p_values.push_back(ratios.back().p_value());
  }
  const std::vector<double> confidences = math::holm_confidences(p_values);
  for (size_t i = 0; i < compared.size(); ++i) {
    compared[i]->result.set(kAppendTotalRatio, ratios[i].value, ratios[i].interval(confidences[i]));
  }
}

class GrowthTrial : public Trial {
 public:
  using Trial::Trial;

 private:
  void begin(const Group&) override {
    bytes_.clear();
    uncached_.reset();
  }
  void prepare(measure::Cell& cell) override {
    // Without a cache, rows are the model's own.
    cell.workload = point().source->workload(cell.uncached ? LayerSpecs(parse_spec("contiguous")) : cell.spec,
                                             point().seq_len);
    if (cell.uncached) return verify_uncached(cell);
    verify(cell);
    if (measure::runs(cell)) measure::open_cache(cell, point(), point().batch);
  }
  void verify(measure::Cell& cell) {
    measure::open_cache(cell, point(), point().batch);
    fill(cell, point(), 0);
    workload::TokenFeed tokens(*cell.workload, point().batch);
    std::vector<GrowthBytes>& bytes = bytes_[&cell];
    const bool attend = settings()[kAttendKey];
    for (int64_t t = 0; t < point().seq_len; ++t) {
      if (t % kLoadedTokens == 0) tokens.load(t, std::min(kLoadedTokens, point().seq_len - t));
      // Unless every step attends, only the last one does, for the check.
      cell.step(tokens, t, cell.ids, attend || t + 1 == point().seq_len);
      cell.account(std::vector<int64_t>(cell.ids.size(), t + 1));
      bytes.push_back({.payload = *cell.result[results::kBytesPayload],
                       .metadata = *cell.result[results::kBytesMetadata],
                       .slack = *cell.result[results::kBytesSlack],
                       .workspace = cell.ledger->workspace().current_bytes,
                       .copied = *cell.result[results::kBytesCopied]});
    }
    cell.check(tokens, point().seq_len);
  }
  // Nothing is held between steps.
  void verify_uncached(measure::Cell& cell) {
    uncached_ = std::make_unique<UncachedRows>(cell, point());
    for (int64_t t = 1; t <= point().seq_len; ++t) {
      uncached_->step(t, settings()[kAttendKey] || t == point().seq_len);
      bytes_[&cell].push_back({.workspace = uncached_->step_bytes()});
    }
    results::Row& row = cell.result;
    row[results::kBytesPayload] = row[results::kBytesMetadata] = row[results::kBytesSlack] =
        row[results::kBytesCopied] = row[results::kBytesPredicted] = 0;
    row[results::kHeldBytesPerToken] = 0.0;
    row[results::kBytesWorkspacePeak] =
        cell.ledger->workspace().peak_bytes + cell.ledger->payload().peak_bytes;
    row[results::kPeakBytes] = cell.ledger->peak_total_bytes();
    cell.judge(uncached_->errors(), 1);
  }
  // A run is the whole growth of an empty cache.
  void add_tasks(measure::Cell& cell, measure::TimedTasks& tasks) override {
    const bool attend = settings()[kAttendKey];
    const int64_t tokens = point().seq_len;
    const auto feed = std::make_shared<workload::TokenFeed>(*cell.workload, point().batch);
    const auto next = std::make_shared<int64_t>(0);
    const auto begin = [=, this, &cell] {
      *next = 0;
      if (!cell.uncached) fill(cell, point(), 0);
    };
    const auto step = [=, this, &cell] {
      const int64_t t = (*next)++;
      if (cell.uncached) return uncached_->step(t + 1, attend);
      if (t % kLoadedTokens == 0) feed->load(t, std::min(kLoadedTokens, tokens - t));
      return cell.step(*feed, t, cell.ids, attend);
    };
    const auto end = [&cell](std::span<const measure::StepTimes>) {
      if (!cell.uncached) measure::release_all(cell, cell.ids);
    };
    const auto write = [attend, &bytes = bytes_[&cell]](const measure::Cell& of,
                                                        const measure::StepTimes& times, size_t t,
                                                        results::Row& row) {
      measure::write_parts(of, times, t, row);
      if (!attend) row[measure::kAttendUs].reset();
      row[kToken] = static_cast<int64_t>(t) + 1;
      row[results::kBytesPayload] = bytes[t].payload;
      row[results::kBytesMetadata] = bytes[t].metadata;
      row[results::kBytesSlack] = bytes[t].slack;
      row[kBytesWorkspace] = bytes[t].workspace;
      row[results::kBytesCopied] = bytes[t].copied;
    };
    tasks.push_back(measure::sampled(cell, cell.steps,
                                     {.kind = "step",
                                      .steps = tokens,
                                      .step = step,
                                      .begin = begin,
                                      .end = end,
                                      .is_one_run = true,
                                      .table = &kGrowthSteps,
                                      .write = write},
                                     results()));
  }
  void summarise(measure::Cell& cell) override {
    cell.summarise();
    const std::vector<double> totals = append_totals(cell);
    cell.result.set(kAppendTotalUs, math::median(totals), math::median_interval(totals));
    if (cell.uncached) cell.result[measure::kReadGbps].reset();
  }
  void compare(const measure::Cells& cells) override {
    compare_totals(cells);
    compare_with_first(cells);
  }

  std::map<const measure::Cell*, std::vector<GrowthBytes>> bytes_;
  std::unique_ptr<UncachedRows> uncached_;
};

std::string peak_text(const results::Row& row) {
  return row[results::kPeakBytes] ? io::human_bytes(*row[results::kPeakBytes]) : "-";
}

const std::array<TableColumn, 6> kGrowthTable{
    kHeldText, TableColumn{"peak", peak_text}, kErrorText,
    TableColumn{measure::kRatioP50.heading, estimated<measure::kRatioP50, "%.2f">},
    TableColumn{kAppendTotalUs.heading,
                [](const results::Row& row) { return with_interval(row, kAppendTotalUs, "%.3g", 1e-3); },
                ", ms (95 %)"},
    // The experiment's question: the verdict is on this.
    TableColumn{kAppendTotalRatio.heading,
                [](const results::Row& row) { return verdict_text(row, kAppendTotalRatio, "%.3g"); }}};

}  // namespace

constexpr const config::AnyKey* kGrowthKeys[] = {&kAttendKey};
constexpr auto kGrowthGroups =
    joined(kOfCells, kOfKept, kOfSteps, kGrowthColumns, kOfOutputs, kOfChoices, kOfComparisons);
constexpr const results::Table* kGrowthTables[] = {&kGrowthSteps};

constinit const Experiment kGrowth{
    .info = {.name = "growth",
             .help = "growth of an empty cache to a length, one token at a time",
             .keys = kGrowthKeys,
             .takes_latent_rows = true,
             .runs_uncached = true},
    .fixed_tokens = 4000.0,
    .first_step = [](const measure::SweepPoint&) { return int64_t{0}; },
    .tables_every_step = true,
    .columns = kGrowthGroups,
    .tables = kGrowthTables,
    .table = kGrowthTable,
    .plan = plan_growth,
    .run = measured<GrowthTrial>};

}  // namespace kv::experiments
