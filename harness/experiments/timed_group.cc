#include "harness/experiments/timed_group.h"

#include <algorithm>
#include <stdexcept>

#include "harness/measure/compare_cells.h"
#include "harness/memory/machine.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/verify.h"

namespace kv::experiments {

bool TimedGroup::run(const std::vector<measure::Cell*>& group) {
  // Memory kept by an earlier group is returned, since the plan excludes it. Memory freed by this group's
  // verification stays: without it the first repetition would not be warm.
  memory::keep_freed_memory(point_.experiment->measure.allocator == "warm");
  for (measure::Cell* cell : group) {
    if (control_.stop()) return false;
    prepare(*cell);
  }
  Tasks tasks;
  for (measure::Cell* cell : group) {
    if (measure::runs(*cell)) measure::attempt(*cell, [&] { add_tasks(*cell, tasks); });
  }
  if (tasks.empty()) return true;
  add_comparisons(group, tasks);
  if (!measure::run_interleaved(tasks, point_.experiment->measure.repetitions, control_.stop)) return false;
  for (measure::Cell* cell : group) {
    if (!measure::runs(*cell)) continue;
    summarise(*cell);
    cell->cache.reset();
  }
  return true;
}

void TimedGroup::prepare(measure::Cell& cell) {
  measure::attempt(cell, [&] {
    cell.workload = workload_of(cell);
    verify(cell);
    if (!measure::runs(cell))
      return measure::mark(cell, results::Status::kFailed, cell.result[results::kReason]);
    make_ready(cell);
  });
}

int64_t shared_bytes(const measure::SweepPoint& point, int64_t fed) {
  const workload::WorkloadShape& w = point.source->shape();
  const int64_t values = point.seq_len * w.head_dim;  // K of a head; all checked heads are read at once
  const int64_t heads =
      std::clamp<int64_t>(verify::kMostCheckedValues / std::max<int64_t>(1, values), 1, w.kv_heads);
  const double verified =
      2.0 * static_cast<double>(heads + 2) * static_cast<double>(point.seq_len) * w.head_dim;
  const double tokens = measure::value_count(point, w.q_heads + 2.0 * w.kv_heads,
                                             static_cast<double>(std::min(point.seq_len, fed)));
  return static_cast<int64_t>(std::min(sizeof(float) * (tokens + verified), 1e18));
}

std::vector<results::Row> compared_rows(const measure::Cells& cells) {
  const measure::Cell& baseline = *cells.front();
  std::vector<measure::Comparison> comparisons;
  for (const auto& cell : cells) {
    if (cell->group == baseline.group) comparisons.push_back({cell.get(), &baseline, baseline.spec.print()});
  }
  measure::compare_cells(comparisons);
  std::vector<results::Row> rows;
  for (const auto& cell : cells) {
    if (cell->group != baseline.group && !cell->steps.empty() && !baseline.steps.empty()) {
      cell->result[results::kReason] =
          "not compared: it does not fit into memory together with " + baseline.spec.print();
    }
    rows.push_back(cell->result);
  }
  return rows;
}

}  // namespace kv::experiments
