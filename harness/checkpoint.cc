#include "harness/checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "harness/stats.h"
#include "harness/timing.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

constexpr int kCopies = 3;  // loaded, unfrozen and forked, beside the sequence itself

// A folder that is gone when this is.
class ScratchFolder {
 public:
  explicit ScratchFolder(fs::path path) : path_(std::move(path)) {
    fs::remove_all(path_);  // of a run that was killed
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

// A sequence of a cache and where it is set aside.
struct Subject {
  Cache& cache;
  SequenceId id;
  std::string file;
  std::optional<Snapshot> snapshot = {};
};

struct Operation {
  const char* name;  // its column is name + "_p50_us"
  // Returns the sequence that it made, or -1.
  SequenceId (*run)(Subject& subject);
};

constexpr std::array kOperations = std::to_array<Operation>({
    {"save",
     [](Subject& s) {
       s.cache.save(s.id, s.file);
       return -1;
     }},
    {"load", [](Subject& s) { return s.cache.load(s.file); }},
    {"freeze",
     [](Subject& s) {
       s.snapshot.emplace(s.cache.freeze(s.id));
       return -1;
     }},
    {"unfreeze", [](Subject& s) { return s.cache.unfreeze(*s.snapshot); }},
    {"fork", [](Subject& s) { return s.cache.fork(s.id); }},
});

// One operation again and again. What it made is released, and its memory is back, before the next.
class OperationTask : public TimedTask {
 public:
  OperationTask(const LiveCell& cell, const Operation& operation, Subject& subject, int iterations,
                ResultsFolder& results)
      : cell_(cell), operation_(operation), subject_(subject), iterations_(iterations), results_(results) {}

  std::string name() const override { return cell_.key + " " + operation_.name; }
  int iterations() const override { return iterations_; }
  void begin(int repetition) override { repetition_ = repetition, times_.clear(); }

  double run() override {
    Stopwatch watch;
    const SequenceId made = operation_.run(subject_);
    const double seconds = watch.lap();
    if (made >= 0) subject_.cache.release(made);
    times_.push_back(seconds * 1e6);
    return seconds;
  }

  void end() override {
    std::vector<Row> rows;
    for (size_t i = 0; i < times_.size(); ++i) {
      Row& row = rows.emplace_back(sample_columns());
      for (const char* column : {"variant", "seq_len", "batch", "cell"})
        row.set(column, cell_.row.text(column));
      row.set("repetition", repetition_);
      row.set("sample", static_cast<int64_t>(i));
      row.set("kind", operation_.name);
      row.set("step_us", times_[i]);
    }
    results_.add_samples(rows);
    all_.insert(all_.end(), times_.begin(), times_.end());
  }

  void write(Row& cell) const {
    cell.set(std::string(operation_.name) + "_p50_us", median(all_));
    cell.set("samples", static_cast<int64_t>(all_.size()));
  }

 private:
  const LiveCell& cell_;
  const Operation& operation_;
  Subject& subject_;
  const int iterations_;
  ResultsFolder& results_;
  int repetition_ = 0;
  std::vector<double> times_, all_;
};

class CheckpointRun {
 public:
  CheckpointRun(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results)
      : plan_(plan), limits_(limits), results_(results), folder_(results.path() / "checkpoint.part") {}

  // False if it was stopped.
  bool measure(LiveCell& cell) {
    // Each of the copies, the snapshot, and a growing placement's old and new buffer.
    if (!fits(cell, (kCopies + 4) * held_bytes(plan_, cell.spec), limits_)) return true;
    bool finished = true;
    try {
      fill(cell);
      Subject subject{*cell.cache, cell.ids.front(), folder_.file()};
      const std::string difference = resumes_exactly(cell, subject);
      if (!difference.empty()) {
        give_up(cell, "failed", difference);
      } else if (runs(cell)) {
        finished = time(cell, subject);
      }
    } catch (const std::bad_alloc&) {
      give_up(cell, "out_of_memory", "ran out of memory");
    }
    cell.cache.reset();
    return finished;
  }

 private:
  // All tokens but the last, which shows whether a copy goes on alike.
  void fill(LiveCell& cell) {
    cell.workload = plan_.source->workload(cell.spec, plan_.seq_len);
    cell.ledger = std::make_unique<Ledger>(limits_.memory_bytes);
    cell.cache = build_cache(cell.spec, cache_shape(plan_, plan_.batch + kCopies), *cell.ledger);
    cell.row.set("kernel", cell.cache->kernel());
    for (int i = 0; i < plan_.batch; ++i) cell.ids.push_back(cell.cache->add_sequence());
    cell.prompt = plan_.seq_len - 1;
    prefill(*cell.cache, *cell.workload, cell.ids, 0, cell.prompt);
  }

  // Empty, or what differs. Leaves the sequence at its full length, the columns of bytes and errors filled
  // in, and a file and a snapshot of that length.
  std::string resumes_exactly(LiveCell& cell, Subject& subject) {
    std::vector<std::pair<const char*, SequenceId>> copies;
    for (const Operation& operation : kOperations) {
      const SequenceId made = operation.run(subject);
      if (made >= 0) copies.emplace_back(operation.name, made);
    }
    TokenFeed all(*cell.workload, plan_.batch), one(*cell.workload, 1);
    all.load(plan_.seq_len - 1, 1);
    one.load(plan_.seq_len - 1, 1);
    cell.ledger->reset_peaks();
    cell.step(all, plan_.seq_len - 1, cell.ids, true);
    for (const auto& [name, copy] : copies) {
      cell.step(one, plan_.seq_len - 1, {&copy, 1}, true);
      if (!alike(cell, all, one, copy))
        return std::string("after ") + name + " a sequence does not go on as the one it came from";
      cell.cache->release(copy);
    }
    subject.snapshot.reset();  // not the cache's own
    cell.account(std::vector<int64_t>(cell.ids.size(), plan_.seq_len));
    cell.check(all, plan_.seq_len);
    for (const Operation& operation : kOperations) {
      const int64_t before = held(cell);
      const SequenceId made = operation.run(subject);
      if (operation.name == std::string_view("fork")) cell.row.set("fork_bytes", held(cell) - before);
      if (made >= 0) cell.cache->release(made);
    }
    cell.row.set("saved_bytes", static_cast<int64_t>(fs::file_size(subject.file)));
    return "";
  }

  static int64_t held(const LiveCell& cell) {
    return cell.ledger->payload().current_bytes + cell.ledger->metadata().current_bytes;
  }

  // The last step's outputs of the first sequence and of its copy, and what both keep.
  static bool alike(LiveCell& cell, const TokenFeed& all, const TokenFeed& one, SequenceId copy) {
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

  bool time(LiveCell& cell, Subject& subject) {
    const MeasureConfig& measure = plan_.experiment->measure;
    std::vector<std::unique_ptr<TimedTask>> tasks;
    std::vector<const OperationTask*> timed;
    for (const Operation& operation : kOperations) {
      auto task = std::make_unique<OperationTask>(cell, operation, subject, measure.steps, results_);
      timed.push_back(task.get());
      tasks.push_back(std::move(task));
    }
    if (!run_interleaved(tasks, measure.repetitions, limits_.stop)) return false;
    for (const OperationTask* task : timed) task->write(cell.row);
    cell.row.set("repetitions", measure.repetitions);
    return true;
  }

  const BlockPlan& plan_;
  const BlockLimits& limits_;
  ResultsFolder& results_;
  ScratchFolder folder_;
};

}  // namespace

std::vector<Row> run_checkpoint_block(const BlockPlan& plan, const BlockLimits& limits,
                                      ResultsFolder& results) {
  CheckpointRun run(plan, limits, results);
  std::vector<Row> rows;
  for (const Spec& spec : plan.experiment->axes.variants) {
    if (limits.stop()) return {};
    const auto cell = make_cell(plan, spec);
    if (runs(*cell) && !run.measure(*cell)) return {};
    rows.push_back(cell->row);
  }
  return rows;
}

}  // namespace kv
