// The checkpoint experiment: the cost, against length, of saving and loading a sequence, taking and restoring a
// snapshot, forking, and compacting a pool with a gap as large as the sequence.
//
// Each operation's copy must first continue bit for bit like its source; only then is it timed.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/checkpoint/columns.h"
#include "harness/experiments/list.h"
#include "harness/experiments/written_columns.h"
#include "harness/math/stats.h"
#include "harness/measure/cell.h"
#include "harness/measure/sample_columns.h"
#include "harness/measure/time_columns.h"
#include "harness/measure/timed_tasks.h"

namespace kv::experiments {
namespace {

namespace fs = std::filesystem;

constexpr int kCopies = 5;  // loaded, restored, forked, two for a gap; beside the sequence

void plan_checkpoint(measure::SweepPoint& point) {
  add_variants(point);
  // Counts each of the copies, the snapshot, and a growing placement's old and new buffer.
  fit_alone(point, [&](const measure::PlannedCell& cell) {
    return (kCopies + 4) * measure::held_bytes(point, cell.spec);
  });
}

// A folder that is removed with this object.
class ScratchFolder {
 public:
  explicit ScratchFolder(fs::path path) : path_(std::move(path)) {
    fs::remove_all(path_);  // left by a run that was killed
    fs::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file() const { return (path_ / "sequence.kv").string(); }

 private:
  fs::path path_;
};

// A sequence of a cache and the places it is saved to.
struct Subject {
  Cache& cache;
  SequenceId id;
  std::string file;
  std::optional<Snapshot> snapshot = {};
  SequenceId behind_gap = -1;
  int64_t compacted_bytes = 0;
};

struct Operation {
  const char* name;
  results::NumberColumn p50_us;
  // Returns the new sequence, or -1.
  SequenceId (*run)(Subject& subject);
  // Runs before each, untimed.
  void (*prepare)(Subject& subject) = nullptr;
};

constexpr std::array kOperations = std::to_array<Operation>({
    {"save", kSaveP50Us,
     [](Subject& s) {
       s.cache.save(s.id, s.file);
       return -1;
     }},
    {"load", kLoadP50Us, [](Subject& s) { return s.cache.load(s.file); }},
    {"freeze", kFreezeP50Us,
     [](Subject& s) {
       s.snapshot.emplace(s.cache.snapshot(s.id));
       return -1;
     }},
    {"unfreeze", kUnfreezeP50Us, [](Subject& s) { return s.cache.restore(*s.snapshot); }},
    {"fork", kForkP50Us, [](Subject& s) { return s.cache.fork(s.id); }},
    {"compact", kCompactP50Us,
     [](Subject& s) {
       s.compacted_bytes = s.cache.compact();
       return s.behind_gap;
     },
     [](Subject& s) {
       const SequenceId gap = s.cache.restore(*s.snapshot);
       s.behind_gap = s.cache.restore(*s.snapshot);
       s.cache.release(gap);
     }},
});

SequenceId run_operation(const Operation& operation, Subject& subject) {
  if (operation.prepare) operation.prepare(subject);
  return operation.run(subject);
}

// Only pools with segments can be compacted.
bool is_wanted(const Operation& operation, const LayerSpecs& specs) {
  return !operation.prepare || specs.any([](const Spec& spec) {
    const std::optional<PoolSettings> pool = pool_settings(spec);
    return pool && pool->segment_blocks > 0;
  });
}

// Times one operation again and again. Its result is released, and the memory is back, before the next.
class OperationTask : public measure::CellTask {
 public:
  OperationTask(measure::Cell& cell, const Operation& operation, Subject& subject, int iterations,
                results::ResultsFolder& results)
      : CellTask(cell),
        operation_(operation),
        subject_(subject),
        iterations_(iterations),
        results_(results) {}

  std::string name() const override { return cell_.key + " " + operation_.name; }
  int iterations() const override { return iterations_; }
  void begin(int repetition) override { repetition_ = repetition, times_.clear(); }

  double run() override {
    if (operation_.prepare) operation_.prepare(subject_);
    measure::Stopwatch watch;
    const SequenceId made = operation_.run(subject_);
    const double seconds = watch.lap();
    if (made >= 0) subject_.cache.release(made);
    times_.push_back(seconds * 1e6);
    return seconds;
  }

  void end() override {
    std::vector<results::Row> rows;
    for (size_t i = 0; i < times_.size(); ++i) {
      rows.push_back(measure::sample_of(cell_, repetition_, i, operation_.name));
      rows.back()[measure::kStepUs] = times_[i];
    }
    results_.add(measure::kSamples, rows);
    all_.push_back(times_);
  }

  void write(results::Row& cell) const {
    cell[operation_.p50_us] = math::median(math::repetition_medians(all_));
    cell[measure::kSampleCount] = static_cast<int64_t>(all_.size()) * iterations_;
  }

 private:
  const Operation& operation_;
  Subject& subject_;
  const int iterations_;
  results::ResultsFolder& results_;
  int repetition_ = 0;
  std::vector<double> times_;
  std::vector<std::vector<double>> all_;  // by repetition
};

class CheckpointRun {
 public:
  CheckpointRun(const measure::SweepPoint& point, const measure::RunControl& control,
                results::ResultsFolder& results)
      : point_(point), control_(control), results_(results), folder_(results.path() / "checkpoint.part") {}

  // Returns false if stopped.
  bool measure(measure::Cell& cell) {
    bool finished = true;
    measure::attempt(cell, [&] {
      fill(cell);
      Subject subject{*cell.cache, cell.ids.front(), folder_.file()};
      const std::string difference = resumes_exactly(cell, subject);
      if (!difference.empty()) {
        measure::mark(cell, results::Status::kFailed, difference);
      } else if (measure::runs(cell)) {
        finished = time(cell, subject);
      }
    });
    cell.cache.reset();
    return finished;
  }

 private:
  // Fills all tokens but the last, which shows whether a copy continues alike.
  void fill(measure::Cell& cell) {
    cell.workload = point_.source->workload(cell.spec, point_.seq_len);
    measure::open_cache(cell, point_, point_.batch + kCopies);
    for (int i = 0; i < point_.batch; ++i) cell.ids.push_back(cell.cache->add_sequence());
    cell.prompt = point_.seq_len - 1;
    workload::prefill(*cell.cache, *cell.workload, cell.ids, 0, cell.prompt);
  }

  // Returns the difference, or empty. Leaves the sequence at its full length, the columns of bytes and errors set,
  // and a file and a snapshot of that length.
  std::string resumes_exactly(measure::Cell& cell, Subject& subject) {
    std::vector<std::pair<const char*, SequenceId>> copies;
    for (const Operation& operation : kOperations) {
      if (!is_wanted(operation, cell.spec)) continue;
      const SequenceId made = run_operation(operation, subject);
      if (made >= 0) copies.emplace_back(operation.name, made);
    }
    workload::TokenFeed all(*cell.workload, point_.batch), one(*cell.workload, 1);
    all.load(point_.seq_len - 1, 1);
    one.load(point_.seq_len - 1, 1);
    cell.ledger->reset_peaks();
    cell.step(all, point_.seq_len - 1, cell.ids, true);
    for (const auto& [name, copy] : copies) {
      cell.step(one, point_.seq_len - 1, {&copy, 1}, true);
      if (!alike(cell, all, one, copy))
        return std::string("after ") + name + " a sequence does not continue like its source";
      cell.cache->release(copy);
    }
    subject.snapshot.reset();  // not the cache's own
    cell.cache->compact();     // closes gaps left by the copies, which the closed form excludes
    cell.account(std::vector<int64_t>(cell.ids.size(), point_.seq_len));
    cell.check(all, point_.seq_len);
    for (const Operation& operation : kOperations) {
      if (!is_wanted(operation, cell.spec)) continue;
      if (operation.prepare) operation.prepare(subject);
      const int64_t before = held(cell);
      const SequenceId made = operation.run(subject);
      if (operation.name == std::string_view("fork")) cell.result[kForkBytes] = held(cell) - before;
      if (operation.prepare) {
        cell.result[kCompactMovedBytes] = subject.compacted_bytes;
        cell.result[kCompactFreedBytes] = before - held(cell);
      }
      if (made >= 0) cell.cache->release(made);
    }
    cell.result[kSavedBytes] = static_cast<int64_t>(fs::file_size(subject.file));
    return "";
  }

  static int64_t held(const measure::Cell& cell) {
    return cell.ledger->payload().current_bytes + cell.ledger->metadata().current_bytes;
  }

  // Compares the first sequence with its copy: the last step's outputs and the kept tokens.
  static bool alike(measure::Cell& cell, const workload::TokenFeed& all, const workload::TokenFeed& one,
                    SequenceId copy) {
    const CacheShape& s = cell.cache->shape();
    for (int layer = 0; layer < s.layers; ++layer) {
      const float *want = all.out(layer, 0), *got = one.out(layer, 0);
      if (std::memcmp(want, got, sizeof(float) * static_cast<size_t>(s.q_heads * s.head_dim)) != 0)
        return false;
      for (int head = 0; head < s.kv_heads; ++head) {
        if (cell.cache->kept(cell.ids.front(), layer, head) != cell.cache->kept(copy, layer, head))
          return false;
      }
    }
    return true;
  }

  bool time(measure::Cell& cell, Subject& subject) {
    const config::MeasureConfig& measure = point_.experiment->measure;
    std::vector<std::unique_ptr<measure::TimedTask>> tasks;
    std::vector<const OperationTask*> timed;
    for (const Operation& operation : kOperations) {
      if (!is_wanted(operation, cell.spec)) continue;
      auto task = std::make_unique<OperationTask>(cell, operation, subject, measure.steps, results_);
      timed.push_back(task.get());
      tasks.push_back(std::move(task));
    }
    if (!measure::run_interleaved(tasks, measure.repetitions, control_.stop)) return false;
    for (const OperationTask* task : timed) task->write(cell.result);
    cell.result[measure::kRepetitions] = measure.repetitions;
    return true;
  }

  const measure::SweepPoint& point_;
  const measure::RunControl& control_;
  results::ResultsFolder& results_;
  ScratchFolder folder_;
};

std::vector<results::Row> run_checkpoint(const measure::SweepPoint& point, const measure::RunControl& control,
                                         results::ResultsFolder& results) {
  CheckpointRun run(point, control, results);
  std::vector<results::Row> rows;
  for (const measure::PlannedCell& planned : point.cells) {
    if (control.stop()) return {};
    const auto cell = measure::make_cell(point, planned);
    if (measure::runs(*cell) && !run.measure(*cell)) return {};
    rows.push_back(cell->result);
  }
  return rows;
}

}  // namespace

constexpr std::array kOwnOfCheckpoint{ColumnGroup{kCheckpointColumns},
                                      ColumnGroup{measure::kRepetitionColumns}};
constexpr auto kCheckpointGroups = joined(kOfCells, kOfKept, kOwnOfCheckpoint, kOfOutputs, kOfChoices);
constexpr const results::Table* kCheckpointTables[] = {&measure::kSamples};

constinit const Experiment kCheckpoint{
    .info = {.name = "checkpoint",
             .help = "save, load, snapshot, restore, fork and compaction against length"},
    .fixed_tokens = 4000.0,
    .columns = kCheckpointGroups,
    .tables = kCheckpointTables,
    .plan = plan_checkpoint,
    .run = run_checkpoint};

}  // namespace kv::experiments
