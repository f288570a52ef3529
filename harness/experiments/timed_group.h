// The common part of decode and growth: the cells of a sweep point that fit into memory together are verified one
// after another, timed interleaved, and compared with the first.
#pragma once

#include <memory>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/measure/timing.h"
#include "harness/results/results_folder.h"

namespace kv::experiments {

// A group of cells measured side by side.
class TimedGroup {
 public:
  using Tasks = std::vector<std::unique_ptr<measure::TimedTask>>;

  TimedGroup(const measure::SweepPoint& point, const measure::RunControl& control,
             results::ResultsFolder& results)
      : point_(point), control_(control), results_(results) {}
  virtual ~TimedGroup() = default;

  // Returns false if stopped.
  bool run(const std::vector<measure::Cell*>& group);

 protected:
  // The cell's workload.
  virtual std::shared_ptr<const workload::Workload> workload_of(const measure::Cell& cell) {
    return point_.source->workload(cell.spec, point_.seq_len);
  }
  // Verifies and accounts the cell, whose workload is set.
  virtual void verify(measure::Cell& cell) = 0;
  // Opens the cache to be timed.
  virtual void make_ready(measure::Cell& cell) = 0;
  virtual void add_tasks(measure::Cell& cell, Tasks& tasks) = 0;
  // Adds the tasks that the cells are compared with, measured between them.
  virtual void add_comparisons(const std::vector<measure::Cell*>& /*group*/, Tasks& /*tasks*/) {}
  virtual void summarise(measure::Cell& cell) { cell.summarise(); }

  const measure::SweepPoint& point() const { return point_; }
  results::ResultsFolder& results() const { return results_; }

 private:
  void prepare(measure::Cell& cell);

  const measure::SweepPoint& point_;
  const measure::RunControl& control_;
  results::ResultsFolder& results_;
};

// Bytes that a point holds regardless of the variant: `fed` tokens loaded at a time, and the rows that verify an
// output.
int64_t shared_bytes(const measure::SweepPoint& point, int64_t fed);

// Compares each cell with the first, if both were measured side by side; returns all rows.
std::vector<results::Row> compared_rows(const measure::Cells& cells);

// `compare`: what an experiment compares beside its steps.
template <class Group>
std::vector<results::Row> run_groups(const measure::SweepPoint& point, const measure::RunControl& control,
                                     results::ResultsFolder& results,
                                     void (*compare)(const measure::Cells&) = nullptr) {
  const measure::Cells cells = measure::make_cells(point);
  for (const std::vector<measure::Cell*>& group : measure::groups_of(cells)) {
    if (!Group(point, control, results).run(group)) return {};
  }
  if (compare) compare(cells);
  return compared_rows(cells);
}

}  // namespace kv::experiments
