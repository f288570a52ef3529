// The growth experiment: an empty cache grows to a length one token at a time; every step is recorded.
#include <algorithm>
#include <map>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/growth/axes.h"
#include "harness/experiments/growth/columns.h"
#include "harness/experiments/growth/uncached_rows.h"
#include "harness/experiments/list.h"
#include "harness/experiments/timed_group.h"
#include "harness/experiments/written_columns.h"
#include "harness/io/bytes.h"
#include "harness/math/medians.h"
#include "harness/measure/sample_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/measure/timed_tasks.h"
#include "harness/results/cell_columns.h"
#include "variants/cache/spec.h"

namespace kv::experiments {
namespace {

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

// One iteration is a whole run from an empty cache.
class GrowthTask : public measure::CellTask {
 public:
  // Steps `uncached` instead of the cell's cache if it is not null.
  GrowthTask(measure::Cell& cell, UncachedRows* uncached, int batch, bool attend,
             const std::vector<GrowthBytes>& bytes, results::ResultsFolder& results)
      : CellTask(cell),
        uncached_(uncached),
        attend_(attend),
        feed_(*cell.workload, batch),
        bytes_(bytes),
        results_(results) {}

  std::string name() const override { return cell_.key; }
  int iterations() const override { return 1; }
  void begin(int repetition) override {
    repetition_ = repetition;
    for (int i = 0; !uncached_ && i < feed_.sequences(); ++i) ids_.push_back(cell_.cache->add_sequence());
  }
  double run() override {
    times_.clear();
    double us = 0.0;
    const int64_t tokens = static_cast<int64_t>(bytes_.size());
    for (int64_t t = 0; t < tokens; ++t) {
      if (!uncached_ && t % kLoadedTokens == 0) feed_.load(t, std::min(kLoadedTokens, tokens - t));
      times_.push_back(uncached_ ? uncached_->step(t + 1, attend_) : cell_.step(feed_, t, ids_, attend_));
      us += times_.back().step_us();
    }
    return us * 1e-6;
  }
  void end() override {
    for (const SequenceId id : ids_) cell_.cache->release(id);
    ids_.clear();
    std::vector<results::Row> rows;
    for (size_t t = 0; t < times_.size(); ++t) rows.push_back(step_row(t));
    results_.add(kGrowthSteps, rows);
    cell_.steps.push_back(times_);
  }

 private:
  results::Row step_row(size_t t) const {
    results::Row row = results::row_of(cell_.result);
    row[measure::kRepetition] = repetition_;
    row[kToken] = static_cast<int64_t>(t) + 1;
    row[measure::kAppendUs] = times_[t].append_us;
    row[measure::kViewUs] = times_[t].view_us;
    if (attend_) row[measure::kAttendUs] = times_[t].attend_us;
    row[measure::kStepUs] = times_[t].step_us();
    row[results::kBytesPayload] = bytes_[t].payload;
    row[results::kBytesMetadata] = bytes_[t].metadata;
    row[results::kBytesSlack] = bytes_[t].slack;
    row[kBytesWorkspace] = bytes_[t].workspace;
    row[results::kBytesCopied] = bytes_[t].copied;
    return row;
  }

  UncachedRows* uncached_;
  const bool attend_;
  workload::TokenFeed feed_;
  const std::vector<GrowthBytes>& bytes_;
  results::ResultsFolder& results_;
  std::vector<SequenceId> ids_;
  std::vector<measure::StepTimes> times_;
  int repetition_ = 0;
};

class GrowthGroup : public TimedGroup {
 public:
  using TimedGroup::TimedGroup;

 private:
  // Without a cache, rows are the model's own.
  std::shared_ptr<const workload::Workload> workload_of(const measure::Cell& cell) override {
    return cell.uncached ? point().source->workload(LayerSpecs(parse_spec("contiguous")), point().seq_len)
                         : TimedGroup::workload_of(cell);
  }
  void verify(measure::Cell& cell) override {
    if (cell.uncached) return verify_uncached(cell);
    measure::open_cache(cell, point(), point().batch);
    for (int i = 0; i < point().batch; ++i) cell.ids.push_back(cell.cache->add_sequence());
    workload::TokenFeed tokens(*cell.workload, point().batch);
    std::vector<GrowthBytes>& bytes = bytes_[&cell];
    const bool attend = point().experiment->settings[kAttendKey];
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
      uncached_->step(t, point().experiment->settings[kAttendKey] || t == point().seq_len);
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
  void make_ready(measure::Cell& cell) override {
    if (!cell.uncached) measure::open_cache(cell, point(), point().batch);
  }
  void add_tasks(measure::Cell& cell, Tasks& tasks) override {
    tasks.push_back(std::make_unique<GrowthTask>(cell, cell.uncached ? uncached_.get() : nullptr,
                                                 point().batch, point().experiment->settings[kAttendKey],
                                                 bytes_[&cell], results()));
  }
  void summarise(measure::Cell& cell) override {
    cell.summarise();
    const std::vector<double> totals = append_totals(cell);
    cell.result.set(kAppendTotalUs, math::median(totals), math::median_interval(totals));
    if (cell.uncached) cell.result[measure::kReadGbps].reset();
  }

  std::map<const measure::Cell*, std::vector<GrowthBytes>> bytes_;
  std::unique_ptr<UncachedRows> uncached_;
};

std::vector<results::Row> run_growth(const measure::SweepPoint& point, const measure::RunControl& control,
                                     results::ResultsFolder& results) {
  return run_groups<GrowthGroup>(point, control, results, compare_totals);
}

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
constexpr std::array kOwnOfGrowth{ColumnGroup{kGrowthColumns}};
constexpr auto kGrowthGroups =
    joined(kOfCells, kOfKept, kOfSteps, kOwnOfGrowth, kOfOutputs, kOfChoices, kOfComparisons);
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
    .pace = &kAppendTotalRatio,
    .plan = plan_growth,
    .run = run_growth};

}  // namespace kv::experiments
