// The checkpoint experiment: the cost, against length, of saving and loading a sequence, taking and restoring a
// snapshot, forking, and compacting a pool with a gap as large as the sequence.
//
// Each operation's copy must first continue bit for bit like its source; only then is it timed.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "harness/experiments/cell_plan.h"
#include "harness/experiments/checkpoint/columns.h"
#include "harness/experiments/list.h"
#include "harness/experiments/trial.h"
#include "harness/experiments/written_columns.h"
#include "harness/math/stats.h"
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
  Subject(Cache& of, SequenceId sequence, std::string path)
      : cache(of), id(sequence), file(std::move(path)) {}
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

class CheckpointTrial : public Trial {
 public:
  CheckpointTrial(const measure::SweepPoint& point, const measure::RunControl& control,
                  results::ResultsFolder& results)
      : Trial(point, control, results), folder_(results.path() / "checkpoint.part") {}

 private:
  How how() const override { return How::kAlone; }

  void begin(const Group&) override { samples_.clear(); }
  void prepare(measure::Cell& cell) override {
    fill_all_but_one(cell);
    subject_.emplace(*cell.cache, cell.ids.front(), folder_.file());
    const std::string difference = resumes_exactly(cell, *subject_);
    if (!difference.empty()) measure::mark(cell, results::Status::kFailed, difference);
  }

  // Times each operation again and again. Its result is released, and the memory is back, before the next.
  void add_tasks(measure::Cell& cell, measure::TimedTasks& tasks) override {
    for (const Operation& operation : kOperations) {
      if (!is_wanted(operation, cell.spec)) continue;
      const auto step = [this, &operation] {
        if (operation.prepare) operation.prepare(*subject_);
        measure::Stopwatch watch;
        const SequenceId made = operation.run(*subject_);
        const double seconds = watch.lap();
        if (made >= 0) subject_->cache.release(made);
        return measure::StepTimes{.attend_us = seconds * 1e6};
      };
      tasks.push_back(measure::sampled(
          cell, samples_[&operation],
          {.kind = operation.name, .steps = point().experiment->measure.steps, .step = step}, results()));
    }
  }
  void summarise(measure::Cell& cell) override {
    const config::MeasureConfig& m = point().experiment->measure;
    for (const auto& [operation, samples] : samples_)
      cell.result[operation->p50_us] = math::median(measure::repetition_medians(samples));
    cell.result[measure::kSampleCount] = m.repetitions * m.steps;
    cell.result[measure::kRepetitions] = m.repetitions;
    subject_.reset();  // before its cache
  }

  // Fills all tokens but the last, which shows whether a copy continues alike.
  void fill_all_but_one(measure::Cell& cell) const {
    cell.workload = point().source->workload(cell.spec, point().seq_len);
    measure::open_cache(cell, point(), point().batch + kCopies);
    cell.prompt = point().seq_len - 1;
    fill(cell, point(), cell.prompt);
  }

  // Returns the difference, or empty. Leaves the sequence at its full length, the columns of bytes and errors set,
  // and a file and a snapshot of that length.
  std::string resumes_exactly(measure::Cell& cell, Subject& subject) const {
    std::vector<std::pair<const char*, SequenceId>> copies;
    for (const Operation& operation : kOperations) {
      if (!is_wanted(operation, cell.spec)) continue;
      const SequenceId made = run_operation(operation, subject);
      if (made >= 0) copies.emplace_back(operation.name, made);
    }
    workload::TokenFeed all(*cell.workload, point().batch), one(*cell.workload, 1);
    all.load(point().seq_len - 1, 1);
    one.load(point().seq_len - 1, 1);
    cell.ledger->reset_peaks();
    cell.step(all, point().seq_len - 1, cell.ids, true);
    for (const auto& [name, copy] : copies) {
      cell.step(one, point().seq_len - 1, {&copy, 1}, true);
      if (!alike(cell, all, one, copy))
        return std::string("after ") + name + " a sequence does not continue like its source";
      cell.cache->release(copy);
    }
    subject.snapshot.reset();  // not the cache's own
    cell.cache->compact();     // closes gaps left by the copies, which the closed form excludes
    cell.account(std::vector<int64_t>(cell.ids.size(), point().seq_len));
    cell.check(all, point().seq_len);
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

  ScratchFolder folder_;
  std::optional<Subject> subject_;
  std::map<const Operation*, measure::Samples> samples_;
};

}  // namespace

constexpr auto kCheckpointGroups =
    joined(kOfCells, kOfKept, kCheckpointColumns, measure::kRepetitionColumns, kOfOutputs, kOfChoices);
constexpr const results::Table* kCheckpointTables[] = {&measure::kSamples};

constinit const Experiment kCheckpoint{
    .info = {.name = "checkpoint",
             .help = "save, load, snapshot, restore, fork and compaction against length"},
    .fixed_tokens = 4000.0,
    .columns = kCheckpointGroups,
    .tables = kCheckpointTables,
    .plan = plan_checkpoint,
    .run = measured<CheckpointTrial>};

}  // namespace kv::experiments
