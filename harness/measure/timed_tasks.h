// Timed tasks of a cell: steps of any kind, decode steps, and attention on cold caches.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "harness/measure/cell.h"
#include "harness/measure/time_columns.h"
#include "harness/measure/timing.h"
#include "harness/results/results_folder.h"
#include "harness/workload/token_feed.h"

namespace kv::measure {

// A task of one cell: an exception ends that cell only. Without a cell it ends the run.
class CellTask : public TimedTask {
 public:
  explicit CellTask(Cell* cell) : cell_(cell) {}
  bool is_active() const override { return !cell_ || runs(*cell_); }
  void handle_exception() override;
  void record_disturbance(int discarded, std::optional<double> share) override;

 private:
  Cell* const cell_;
};

// Write a step's times into its row: the whole alone, a cache's parts besides, or attention alone.
void write_whole(const Cell& cell, const StepTimes& times, size_t step, results::Row& row);
void write_parts(const Cell& cell, const StepTimes& times, size_t step, results::Row& row);
void write_attention(const Cell& cell, const StepTimes& times, size_t step, results::Row& row);

// The parts of a repetition of timed steps.
struct Sampling {
  const char* kind;  // in the table
  int64_t steps;     // of a repetition
  std::function<StepTimes()> step;
  std::function<void()> begin = {};
  std::function<void(std::span<const StepTimes>)> end = {};  // also of a repetition that is discarded
  bool repeats = false;                                      // a repetition can be discarded and taken again
  bool is_elsewhere = false;                                 // another process's threads do the work
  bool is_one_run = false;                                   // a repetition is one run of all its steps
  const results::Table* table = &kSamples;
  std::function<void(const Cell& cell, const StepTimes& times, size_t step, results::Row& row)> write =
      write_whole;
};

// Appends each repetition's times to `samples`, and their rows to the table.
std::unique_ptr<TimedTask> sampled(Cell& cell, Samples& samples, Sampling sampling,
                                   results::ResultsFolder& results);

// Forks of a cell's sequences, so that every repetition starts from the same state.
std::vector<SequenceId> forks_of(Cell& cell);
void release_all(Cell& cell, std::vector<SequenceId>& ids);

// Decode steps base … base + steps - 1 on forks of the cell's sequences.
std::unique_ptr<TimedTask> step_task(Cell& cell, workload::TokenFeed& feed, int64_t base, int64_t steps,
                                     results::ResultsFolder& results);

// Attention alone at `tokens` tokens, each time over another of `replicas` copies of the cache, so that its rows have
// left the last-level cache. Throws std::bad_alloc if the copies do not fit.
std::unique_ptr<TimedTask> cold_task(Cell& cell, workload::TokenFeed& feed, int64_t tokens, int attends,
                                     int replicas, results::ResultsFolder& results);

}  // namespace kv::measure
