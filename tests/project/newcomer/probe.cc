// The probe experiment: one verified step after a prefill. Nothing is timed.
#include "harness/experiments/cell_plan.h"
#include "harness/experiments/list.h"
#include "harness/measure/cell.h"

namespace kv::experiments {
namespace {

void plan_probe(measure::SweepPoint& point) {
  add_variants(point);
  fit_alone(point,
            [&](const measure::PlannedCell& cell) { return 3 * measure::held_bytes(point, cell.spec); });
}

void step_once(measure::Cell& cell, const measure::SweepPoint& point) {
  const int64_t last = point.seq_len - 1;
  cell.workload = point.source->workload(cell.spec, point.seq_len);
  measure::open_cache(cell, point, 1);
  cell.ids.push_back(cell.cache->add_sequence());
  workload::prefill(*cell.cache, *cell.workload, cell.ids, 0, last);
  cell.prompt = last;
  cell.ledger->reset_peaks();
  workload::TokenFeed feed(*cell.workload, 1);
  feed.load(last, 1);
  cell.step(feed, last, cell.ids, true);
  cell.account(std::vector<int64_t>{point.seq_len});
  cell.judge(cell.errors(feed, point.seq_len), 1);
}

std::vector<results::Row> run_probe(const measure::SweepPoint& point, const measure::RunControl& control,
                                    results::ResultsFolder&) {
  std::vector<results::Row> rows;
  for (const measure::PlannedCell& planned : point.cells) {
    if (control.stop()) return {};
    const auto cell = measure::make_cell(point, planned);
    if (measure::runs(*cell)) step_once(*cell, point);
    rows.push_back(cell->result);
  }
  return rows;
}

}  // namespace

constinit const Experiment kProbe{.info = {.name = "probe", .help = "one verified step after a prefill"},
                                  .plan = plan_probe,
                                  .run = run_probe};

}  // namespace kv::experiments
