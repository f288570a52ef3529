#include "harness/experiments/trial.h"

#include <algorithm>
#include <exception>

#include "harness/measure/compare_cells.h"
#include "harness/memory/machine.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/verify.h"

namespace kv::experiments {

std::vector<results::Row> Trial::run() {
  cells_ = measure::make_cells(point_);
  for (const auto& cell : cells_) identify(*cell);
  for (const Group& group : groups()) {
    if (!run_group(group)) return {};
  }
  compare(cells_);
  std::vector<results::Row> rows;
  for (const auto& cell : cells_) rows.push_back(cell->result);
  return rows;
}

std::vector<Trial::Group> Trial::groups() const {
  std::vector<Group> groups;
  for (const auto& cell : cells_) {
    if (!measure::runs(*cell)) continue;
    if (groups.empty() || how() == How::kAlone || groups.back().back()->group != cell->group)
      groups.emplace_back();
    groups.back().push_back(cell.get());
  }
  return groups;
}

bool Trial::run_group(const Group& group) {
  feeds_.clear();
  begin(group);
  // Memory kept by an earlier group is returned, since the plan excludes it. Memory freed by this group's
  // verification stays: without it the first repetition would not be warm.
  if (how() == How::kSideBySide) memory::keep_freed_memory(point_.experiment->measure.allocator == "warm");
  if (!prepare_all(group)) return false;
  measure::TimedTasks tasks;
  for (measure::Cell* cell : group) {
    if (measure::runs(*cell)) measure::attempt(*cell, [&] { add_tasks(*cell, tasks); });
  }
  if (!tasks.empty()) add_comparisons(group, tasks);
  if (!measure::run_interleaved(tasks, point_.experiment->measure.repetitions, control_.stop)) return false;
  for (measure::Cell* cell : group) {
    if (measure::runs(*cell)) summarise(*cell);
    cell->cache.reset();
  }
  return true;
}

void Trial::prepare_one(measure::Cell& cell) {
  measure::attempt(cell, [&] { prepare(cell); });
  if (!measure::runs(cell)) cell.cache.reset();
}

bool Trial::prepare_all(const Group& group) {
  if (how() != How::kAThreadEach) {
    for (measure::Cell* cell : group) {
      if (control_.stop()) return false;
      prepare_one(*cell);
    }
    return true;
  }
  std::vector<std::exception_ptr> thrown(group.size());
#pragma omp parallel for schedule(dynamic, 1)
  for (size_t i = 0; i < group.size(); ++i) {
    try {
      prepare_one(*group[i]);
    } catch (...) {
      thrown[i] = std::current_exception();
    }
  }
  for (const std::exception_ptr& e : thrown) {
    if (e) std::rethrow_exception(e);
  }
  return !control_.stop();
}

workload::TokenFeed& Trial::feed(const measure::Cell& cell, int64_t first, int64_t n,
                                 const std::vector<int64_t>& prompts) {
  auto& feed = feeds_[cell.workload.get()];
  if (!feed) {
    feed = std::make_unique<workload::TokenFeed>(*cell.workload, point_.batch, prompts);
    feed->load(first, n);
  }
  return *feed;
}

void fill(measure::Cell& cell, const measure::SweepPoint& point, int64_t tokens) {
  for (int i = 0; i < point.batch; ++i) cell.ids.push_back(cell.cache->add_sequence());
  if (tokens > 0) workload::prefill(*cell.cache, *cell.workload, cell.ids, 0, tokens);
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

void compare_with_first(const measure::Cells& cells) {
  const measure::Cell& baseline = *cells.front();
  std::vector<measure::Comparison> comparisons;
  for (const auto& cell : cells) {
    if (cell->group == baseline.group)
      comparisons.push_back({cell.get(), &baseline, baseline.spec.print()});
    else if (!cell->steps.empty() && !baseline.steps.empty())
      cell->result[results::kReason] =
          "not compared: it does not fit into memory together with " + baseline.spec.print();
  }
  measure::compare_cells(comparisons);
}

}  // namespace kv::experiments
