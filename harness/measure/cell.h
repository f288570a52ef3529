// The cell under measurement: its cache, its bytes and its samples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
  double projections_us = 0, state_us = 0, rest_us = 0;  // whole models only
  int64_t disk_bytes = 0;                                // read from files; the requests' total time
  double disk_us = 0, disk_wait_us = 0;                  // disk_wait_us: the part in which attention waited
  double step_us() const { return append_us + view_us + attend_us + projections_us + state_us + rest_us; }
};

using Samples = std::vector<std::vector<StepTimes>>;  // [repetition][sample]
// The median of each repetition's samples.
std::vector<double> repetition_medians(const Samples& samples);

// Units that hold `rows` rows of a side; the last may be partly filled.
int64_t units(const Side& side, int64_t rows);

// Bytes and multiply-adds of one attend, counted from the spans; the cache does not report them itself.
struct AttendWork {
  int64_t payload = 0, metadata = 0;  // all kept rows; metadata: scales and zero points only
  int64_t read = 0;  // payload and metadata that attention reads: chosen rows, and what the choice reads
  int64_t payload_in_files = 0;  // payload of rows that came from a file; 0 on a GPU
  int64_t hot = 0, warm = 0;     // payload and metadata in these tiers of `ledger`
  MultiplyAdds multiply_adds;
};
AttendWork attend_work(Cache& cache, std::span<const SequenceId> ids, const memory::Ledger& ledger);

// Replaces a cache's own attention: fills in the outputs of a step's inputs.
using Attend = std::function<void(int layer, std::span<const StepInput> inputs)>;

struct Cell {
  std::string key;
  LayerSpecs spec;
  bool uncached = false;          // no spec and no cache
  std::string peer;               // another engine, as "ggml/q8_0": no cache; `spec` stores the same bits
  std::vector<ModelLayer> kinds;  // the model's layers; empty if all are alike
  LinearShape linear;             // the linear layers among them
  ModelShape model;               // all layers of the model, of which a synthetic workload has some
  size_t group = 0;               // from the plan
  results::Row result;
  std::shared_ptr<const workload::Workload> workload;
  std::unique_ptr<memory::Ledger> ledger;
  std::unique_ptr<Cache> cache;
  std::vector<SequenceId> ids;
  Attend attend_with;                    // empty: the cache's own
  int64_t prompt = 0;                    // tokens of each sequence's first step if it is a prompt
  Samples steps;                         // by which cells are compared
  Samples cold;                          // attends on cold caches; of a GPU by its own clock
  std::vector<double> disturbed_shares;  // of the runs of each repetition that counts
  int64_t discarded = 0;                 // repetitions that were taken again
  int64_t read_bytes = 0;                // one attend's
  bool reads_in_place = false;           // stored rows, neither copies nor rows in files
  MultiplyAdds multiply_adds;            // one attend's

  results::Integer step_disk_bytes;  // read from files by the last step that attended
  int64_t disk_request_bytes = 0;    // size of one request, while steps read from files
  // Bytes that the timed steps read from files, and bytes that devices delivered meanwhile, if the system reports
  // them.
  int64_t timed_disk_bytes = 0;
  results::Integer timed_device_bytes = 0;

  // Runs the whole step of one token for all sequences and layers.
  StepTimes step(workload::TokenFeed& feed, int64_t token, std::span<const SequenceId> sequences,
                 bool attend);

  // Fills the byte columns from the ledger and the spans. Throws std::logic_error if ledger, allocator and closed
  // form disagree. `lengths`: tokens of every open sequence. `prompts`: tokens of their first steps, if these differ
  // from `prompt`.
  void account(std::span<const int64_t> lengths, std::span<const int64_t> prompts = {});
  // Errors of the outputs of the feed's last step, at `tokens` tokens: all sequences together, or [first, end). `step`: that step
  // where a feed counts others than tokens.
  verify::Errors errors(workload::TokenFeed& feed, int64_t tokens) {
    return errors(feed, tokens, 0, feed.sequences());
  }
  verify::Errors errors(workload::TokenFeed& feed, int64_t tokens, int first, int end,
                        std::optional<int64_t> step = std::nullopt);
  // Sets the error columns from `errors`, a mean over `positions` positions, and checks the evictions. Returns false
  // and sets the status if the cell failed.
  bool judge(const verify::Errors& errors, int64_t positions);
  bool check(workload::TokenFeed& feed, int64_t tokens) { return judge(errors(feed, tokens), 1); }
  // Sets the columns of kept tokens: the first sequence's, over layers and KV heads, which may keep different numbers.
  void record_kept();
  // Fills the time columns.
  void summarise();
  bool on_gpu() const { return ledger && ledger->gpu(); }

 private:
  // The cache was built for this geometry.
  ModelShape shape() const { return {cache->shape(), kinds, linear}; }
  verify::PolicyCheck check_policies() const;
  // Counts the codes of a codec in Python in the place of the decoded rows that the cache holds.
  void account_codes(int64_t tokens);
  void account_tiers(const AttendWork& used, std::span<const int64_t> lengths,
                     std::span<const int64_t> prompts);

  int64_t read_back_bytes_ = 0;  // copies made by account() to read rows back, since the ledger began
};

using Cells = std::vector<std::unique_ptr<Cell>>;

// A planned cell with its identity filled in. An unmeasured cell already has its status and reason.
std::unique_ptr<Cell> make_cell(const SweepPoint& point, const PlannedCell& planned);
// All cells of the sweep point, in order.
Cells make_cells(const SweepPoint& point);

bool runs(const Cell& cell);
// Fills in the error of outputs whose error has no split, and the status.
void judge_whole(Cell& cell, const verify::Errors& errors);
// Fills in the error columns: every metric, and the split by cause.
void set_errors(results::Row& result, const verify::Errors& errors);
// Ends the cell early: unsupported, out of memory or failed.
void mark(Cell& cell, results::Status status, const std::string& reason);
// Marks the cell for the exception being handled. Results that cannot be written end the run: that exception is
// rethrown, and so are one of a folder that cannot be made and a GPU's that takes no more work.
void mark_exception(Cell& cell);
// Runs a part of the cell's measurement. An exception ends this cell only.
template <class Part>
void attempt(Cell& cell, const Part& part) {
  try {
    part();
  } catch (...) {
    mark_exception(cell);
  }
}
// Opens an empty cache for `sequences` sequences of the point's length, with its own ledger.
void open_cache(Cell& cell, const SweepPoint& point, int sequences);

}  // namespace kv::measure
