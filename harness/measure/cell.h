// The cell under measurement: its cache, its bytes and its samples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/measure/roofline.h"
#include "harness/measure/sweep_point.h"
#include "harness/measure/timing.h"
#include "harness/memory/ledger.h"
#include "harness/results/cell_columns.h"
#include "harness/verify/policy_check.h"
#include "harness/verify/verify.h"
#include "harness/workload/token_feed.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::measure {

struct StepTimes {
  double append_us = 0, view_us = 0, attend_us = 0;
  double projections_us = 0, state_us = 0, rest_us = 0;  // of a whole model
  int64_t disk_bytes = 0;                // read from files, and the time that the requests took together
  double disk_us = 0, disk_wait_us = 0;  // and that of it in which attention waited
  double step_us() const { return append_us + view_us + attend_us + projections_us + state_us + rest_us; }
};

// That hold `rows` rows of a side, the last one perhaps in part.
int64_t units(const Side& side, int64_t rows);

// What one attend reads and does: counted from the spans, not told by the cache.
struct AttendWork {
  int64_t payload = 0, metadata = 0;  // of all kept rows; metadata: scales and zero points only
  int64_t read = 0;  // of both, what is read: of the rows that the last attend chose, and to choose
  int64_t payload_in_files = 0;  // of rows that came from a file; not on a GPU
  int64_t hot = 0, warm = 0;     // of both together, what lies in these tiers of `ledger`
  MultiplyAdds multiply_adds;
};
AttendWork attend_work(Cache& cache, std::span<const SequenceId> ids, const memory::Ledger& ledger);

// In place of a cache's own attention: fills in the outputs of a step's inputs.
using Attend = std::function<void(int layer, std::span<const StepInput> inputs)>;

struct Cell {
  std::string key;
  LayerSpecs spec;
  bool uncached = false;  // then there is neither a spec nor a cache
  std::string peer;       // another engine's, as "ggml/q8_0": no cache, and `spec` stores the same bits
  std::vector<ModelLayer> kinds;  // of the model's layers; empty where all are alike
  LinearShape linear;             // of the linear ones among them
  size_t arm = 0, group = 0;      // as planned
  results::Row result;
  std::shared_ptr<const workload::Workload> workload;
  std::unique_ptr<memory::Ledger> ledger;
  std::unique_ptr<Cache> cache;
  std::vector<SequenceId> ids;
  Attend attend_with;                         // none: the cache's own
  int64_t prompt = 0;                         // tokens of each sequence's first step, if it was a prompt
  std::vector<std::vector<StepTimes>> steps;  // [repetition][step]
  std::vector<std::vector<double>> cold_us;   // [repetition][attend] of a GPU by its own clock
  std::vector<std::vector<double>> draft_us;  // [repetition][step that verifies drafts]
  int64_t read_bytes = 0;                     // that one attend reads
  bool reads_in_place = false;                // not copies of them, or rows in files
  MultiplyAdds multiply_adds;                 // that it does

  results::Integer step_disk_bytes;  // that the last step that attended has read from files
  int64_t disk_request_bytes = 0;    // of one request, while steps read from files
  // Of the timed steps: read from files, and what devices have delivered meanwhile, if the system says so.
  int64_t timed_disk_bytes = 0;
  results::Integer timed_device_bytes = 0;

  // The whole step of one token of all sequences and layers.
  StepTimes step(workload::TokenFeed& feed, int64_t token, std::span<const SequenceId> sequences,
                 bool attend);

  // Fills the byte columns from the ledger and the spans, and throws std::logic_error if the ledger, the
  // allocator and the closed form do not agree. `lengths` are the tokens of every open sequence,
  // `prompts` those of their first steps, where they are not all `prompt`.
  void account(std::span<const int64_t> lengths, std::span<const int64_t> prompts = {});
  // The errors of the outputs of the feed's last step, at `tokens` tokens: of all sequences together, or of
  // [first, end).
  verify::Errors errors(workload::TokenFeed& feed, int64_t tokens) {
    return errors(feed, tokens, 0, feed.sequences());
  }
  verify::Errors errors(workload::TokenFeed& feed, int64_t tokens, int first, int end);
  // Sets the error columns from `errors`, a mean over `positions` of them, checks the evictions as well, and
  // says so in the status: false if the cell has failed.
  bool judge(const verify::Errors& errors, int64_t positions);
  bool check(workload::TokenFeed& feed, int64_t tokens) { return judge(errors(feed, tokens), 1); }
  // Of the first sequence: the mean over layers, which may keep different numbers.
  int64_t kept_tokens() const;
  // Fills the time columns.
  void summarise();
  bool on_gpu() const { return ledger && ledger->gpu(); }

 private:
  // The geometry that the cache was built for.
  ModelShape shape() const { return {cache->shape(), kinds, linear}; }
  verify::PolicyCheck check_policies() const;
  void account_tiers(const AttendWork& used, std::span<const int64_t> lengths,
                     std::span<const int64_t> prompts);

  int64_t read_back_bytes_ = 0;  // copied by account itself to read the rows back, since the ledger began
};

using Cells = std::vector<std::unique_ptr<Cell>>;

// A planned cell with its identity filled in; `status` is set already where it is not measured, with the
// reason.
std::unique_ptr<Cell> make_cell(const SweepPoint& point, const PlannedCell& planned);
// All of the sweep point's, in order.
Cells make_cells(const SweepPoint& point);
// Those that are measured side by side, group after group.
std::vector<std::vector<Cell*>> groups_of(const Cells& cells);

bool runs(const Cell& cell);
// Fills in the error columns: every metric, and the split by cause.
void set_errors(results::Row& result, const verify::Errors& errors);
// Ends the cell before its time: unsupported, out of memory or failed.
void mark(Cell& cell, results::Status status, const std::string& reason);
// The same for the exception that is being handled. Results that cannot be written end the run: it is thrown again.
void mark_exception(Cell& cell);
// Does a part of the cell's measurement. What it throws ends this cell, and no other.
template <class Part>
void attempt(Cell& cell, const Part& part) {
  try {
    part();
  } catch (...) {
    mark_exception(cell);
  }
}
// An empty cache for `sequences` sequences of the point's length, with a ledger of its own.
void open_cache(Cell& cell, const SweepPoint& point, int sequences);

std::vector<double> step_medians(const Cell& cell);  // one a repetition

}  // namespace kv::measure
