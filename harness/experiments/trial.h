// The measurement of a sweep point: one loop for all experiments, which are its hooks. Each group of cells is prepared,
// timed interleaved, and summarised; then all cells are compared.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/measure/timing.h"
#include "harness/results/results_folder.h"
#include "harness/workload/token_feed.h"

namespace kv::experiments {

class Trial {
 public:
  using Group = std::vector<measure::Cell*>;

  Trial(const measure::SweepPoint& point, const measure::RunControl& control, results::ResultsFolder& results)
      : point_(point), control_(control), results_(results) {}
  virtual ~Trial() = default;

  // The rows of all cells in order; empty if stopped.
  std::vector<results::Row> run();

 protected:
  enum class How {
    kSideBySide,   // a group holds the cells that the plan says fit into memory together
    kAlone,        // a group is one cell
    kAThreadEach,  // cells are prepared side by side, each on one thread
  };
  virtual How how() const { return How::kSideBySide; }

  // Sets columns of each cell before any is measured, also of those that will not be.
  virtual void identify(measure::Cell&) {}
  // Forgets what belonged to the group before.
  virtual void begin(const Group&) {}
  // Opens, verifies and accounts a cell, and leaves what is to be timed. An exception ends this cell only.
  virtual void prepare(measure::Cell&) {}
  // Prepares all cells of the group; returns false if stopped.
  virtual bool prepare_all(const Group& group);
  virtual void add_tasks(measure::Cell&, measure::TimedTasks&) {}
  // Adds the tasks that the cells are compared with, measured between them.
  virtual void add_comparisons(const Group&, measure::TimedTasks&) {}
  // Fills in a cell's columns; its cache is dropped afterwards.
  virtual void summarise(measure::Cell& cell) { cell.summarise(); }
  virtual void compare(const measure::Cells&) {}
  // All of the above for a group; returns false if stopped.
  virtual bool run_group(const Group& group);

  // Steps [first, first + n) of the cell's tokens, loaded; the cells of a group that have one workload share them. `prompts`: tokens
  // of each sequence before the first, if they differ.
  workload::TokenFeed& feed(const measure::Cell& cell, int64_t first, int64_t n,
                            const std::vector<int64_t>& prompts = {});

  const measure::SweepPoint& point() const { return point_; }
  const measure::RunControl& control() const { return control_; }
  const config::Settings& settings() const { return point_.experiment->settings; }
  results::ResultsFolder& results() const { return results_; }

 private:
  std::vector<Group> groups() const;
  void prepare_one(measure::Cell& cell);

  const measure::SweepPoint& point_;
  const measure::RunControl& control_;
  results::ResultsFolder& results_;
  measure::Cells cells_;
  std::map<const workload::Workload*, std::unique_ptr<workload::TokenFeed>> feeds_;
};

// An experiment's `run`.
template <class T>
std::vector<results::Row> measured(const measure::SweepPoint& point, const measure::RunControl& control,
                                   results::ResultsFolder& results) {
  return T(point, control, results).run();
}

// Adds an empty sequence to a cell's cache for each of the point's, and fills it with its first tokens.
void fill(measure::Cell& cell, const measure::SweepPoint& point, int64_t tokens);

// Bytes that a point holds regardless of the variant: `fed` tokens loaded at a time, and the rows that verify an
// output.
int64_t shared_bytes(const measure::SweepPoint& point, int64_t fed);

// Compares each cell with the first, if both were measured side by side.
void compare_with_first(const measure::Cells& cells);

}  // namespace kv::experiments
