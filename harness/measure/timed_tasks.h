// Timed tasks of a cell: decode steps, and attention on cold caches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/measure/timing.h"
#include "harness/results/results_folder.h"
#include "harness/workload/token_feed.h"

namespace kv::measure {

// A task of one cell: an exception ends that cell only.
class CellTask : public TimedTask {
 public:
  explicit CellTask(Cell& cell) : cell_(cell) {}
  bool goes_on() const override { return runs(cell_); }
  void handle_exception() override;
  void take(int discarded, std::optional<double> disturbed_share) override;

 protected:
  Cell& cell_;
};

results::Row sample_of(const Cell& cell, int repetition, size_t sample, const char* kind);

// Decode steps base … base + steps - 1 on forks of the cell's sequences: every repetition starts from the same state.
std::unique_ptr<TimedTask> step_task(Cell& cell, workload::TokenFeed& feed, int64_t base, int64_t steps,
                                     results::ResultsFolder& results);

// Attention alone at `tokens` tokens, each time over another of `replicas` copies of the cache, so that its rows have
// left the last-level cache. Throws std::bad_alloc if the copies do not fit.
std::unique_ptr<TimedTask> cold_task(Cell& cell, workload::TokenFeed& feed, int64_t tokens, int attends,
                                     int replicas, results::ResultsFolder& results);

}  // namespace kv::measure
