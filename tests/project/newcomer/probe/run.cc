// The probe experiment: verified steps of one token after a prompt. Nothing is timed.
#include <cmath>
#include <numeric>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/experiments/probe/columns.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"

namespace kv::experiments {
namespace {

void plan_probe(measure::SweepPoint& point) {
  add_variants(point, "tail " + point.axes.text(kTailTokens));
  fit_alone(point,
            [&](const measure::PlannedCell& cell) { return 3 * measure::held_bytes(point, cell.spec); });
}

class ProbeTrial : public Trial {
 public:
  using Trial::Trial;

 private:
  How how() const override { return How::kAlone; }
  void prepare(measure::Cell& cell) override {
    const int64_t end = point().seq_len, first = end - *point().axes[kTailTokens];
    cell.workload = point().source->workload(cell.spec, end);
    measure::open_cache(cell, point(), 1);
    cell.ids.push_back(cell.cache->add_sequence());
    workload::prefill(*cell.cache, *cell.workload, cell.ids, 0, first);
    cell.prompt = first;
    cell.ledger->reset_peaks();
    workload::TokenFeed feed(*cell.workload, 1);
    feed.load(first, end - first);
    for (int64_t token = first; token < end; ++token) cell.step(feed, token, cell.ids, true);
    cell.account(std::vector<int64_t>{end});
    cell.judge(cell.errors(feed, end), 1);
    const CacheShape& s = cell.cache->shape();
    const float* out = feed.out(0, 0);
    const float square = std::inner_product(out, out + s.q_heads * s.head_dim, out, 0.0F);
    cell.result[kProbeNorm] = std::sqrt(square);
  }
};

constexpr const config::AnyAxis* kProbeAxes[] = {&config::kBatch, &config::kSeqLen, &kTailAxis};
constexpr std::array kOwnOfProbe{ColumnGroup{kProbeColumns}};
constexpr auto kProbeGroups = joined(kOfCells, kOfKept, kOwnOfProbe, kOfOutputs, kOfChoices);
const TableColumn kProbeTable[] = {
    kHeldText, {"norm", [](const results::Row& row) { return number(row[kProbeNorm], "%.3f"); }}, kErrorText};

}  // namespace

constinit const Experiment kProbe{
    .info = {.name = "probe", .help = "verified steps after a prompt", .axes = kProbeAxes},
    .columns = kProbeGroups,
    .table = kProbeTable,
    .plan = plan_probe,
    .run = measured<ProbeTrial>};

}  // namespace kv::experiments
