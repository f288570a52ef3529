#include "harness/measure/timed_tasks.h"

#include <algorithm>
#include <optional>

#include "harness/measure/sample_columns.h"
#include "harness/memory/machine.h"

namespace kv::measure {
namespace {

// Decode steps on a fork of the base sequences: every repetition starts from the same state.
class StepTask : public CellTask {
 public:
  StepTask(Cell& cell, workload::TokenFeed& feed, int64_t base, int64_t steps,
           results::ResultsFolder& results)
      : CellTask(cell), feed_(feed), base_(base), steps_(steps), results_(results) {}

  std::string name() const override { return cell_.key; }
  int iterations() const override { return static_cast<int>(steps_); }

  void begin(int repetition) override {
    repetition_ = repetition;
    token_ = base_;
    times_.clear();
    for (const SequenceId id : cell_.ids) forks_.push_back(cell_.cache->fork(id));
    if (has_tiers(cell_.spec)) device_before_ = memory::device_read_bytes();
  }

  double run() override {
    const StepTimes times = cell_.step(feed_, token_++, forks_, true);
    times_.push_back(times);
    return times.step_us() * 1e-6;
  }

  // Bytes that devices delivered cannot be taken back.
  bool discard() override {
    if (has_tiers(cell_.spec)) return false;
    release();
    return true;
  }

  void end() override {
    if (has_tiers(cell_.spec)) count_device_reads();
    release();
    std::vector<results::Row> rows;
    for (size_t i = 0; i < times_.size(); ++i) {
      results::Row row = sample_of(cell_, repetition_, i, "step");
      row[kAppendUs] = times_[i].append_us;
      row[kViewUs] = times_[i].view_us;
      row[kAttendUs] = times_[i].attend_us;
      row[kStepUs] = times_[i].step_us();
      rows.push_back(std::move(row));
    }
    results_.add(kSamples, rows);
    cell_.steps.push_back(times_);
  }

 private:
  void release() {
    for (const SequenceId id : forks_) cell_.cache->release(id);
    forks_.clear();
  }

  void count_device_reads() {
    for (const StepTimes& step : times_) cell_.timed_disk_bytes += step.disk_bytes;
    const std::optional<int64_t> now = memory::device_read_bytes();
    if (now && device_before_ && cell_.timed_device_bytes)
      *cell_.timed_device_bytes += *now - *device_before_;
    else
      cell_.timed_device_bytes.reset();
  }

  std::optional<int64_t> device_before_;
  workload::TokenFeed& feed_;
  const int64_t base_, steps_;
  results::ResultsFolder& results_;
  std::vector<SequenceId> forks_;
  std::vector<StepTimes> times_;
  int64_t token_ = 0;
  int repetition_ = 0;
};

bool shares_storage(Cache& cache, SequenceId a, SequenceId b) {
  const std::vector<Span> first = cache.spans(a, 0, 0), second = cache.spans(b, 0, 0);
  return !first.empty() && !second.empty() && first[0].k.data == second[0].k.data;
}

// Attention alone, each time over another copy of the cache, so that its rows have left the last-level cache. A GPU
// times itself: uploads before the launches and fetches after them are not timed.
class ColdTask : public CellTask {
 public:
  ColdTask(Cell& cell, workload::TokenFeed& feed, int64_t tokens, int attends, int replicas,
           results::ResultsFolder& results)
      : CellTask(cell),
        feed_(feed),
        tokens_(tokens),
        attends_(attends),
        results_(results),
        ledger_(INT64_MAX, cell.ledger->gpu()) {
    ModelShape shape(cell.cache->shape(), cell.kinds, cell.linear);
    shape.max_sequences = replicas * feed.sequences();
    shape.max_tokens = tokens;
    cache_ = build_cache(cell.spec, shape, ledger_);
    ids_.push_back(filled());
    if (replicas > 1) add_copies(replicas - 1);
    ledger_.time_gpu();
  }

  std::string name() const override { return cell_.key + " cold"; }
  int iterations() const override { return attends_; }

  void begin(int repetition) override {
    repetition_ = repetition;
    times_.clear();
  }

  double run() override {
    const std::vector<SequenceId>& ids = ids_[next_++ % ids_.size()];
    GpuTime* const gpu = ledger_.gpu_time();
    if (gpu) gpu->us = 0.0;
    double seconds = 0.0;
    for (int layer = 0; layer < cache_->shape().layers; ++layer) {
      const auto inputs = feed_.inputs(layer, tokens_ - 1, ids);
      Stopwatch watch;
      cache_->view(layer, inputs);
      cache_->attend(layer, inputs);
      seconds += watch.lap();
    }
    times_.push_back(gpu ? gpu->us : seconds * 1e6);
    return times_.back() * 1e-6;
  }

  bool discard() override { return true; }

  void end() override {
    std::vector<results::Row> rows;
    for (size_t i = 0; i < times_.size(); ++i) {
      results::Row row = sample_of(cell_, repetition_, i, "cold");
      (cell_.on_gpu() ? row[kGpuUs] : row[kAttendUs]) = times_[i];
      rows.push_back(std::move(row));
    }
    results_.add(kSamples, rows);
    cell_.cold_us.push_back(times_);
  }

 private:
  std::vector<SequenceId> filled() {
    std::vector<SequenceId> ids;
    for (int i = 0; i < feed_.sequences(); ++i) ids.push_back(cache_->add_sequence());
    workload::prefill(*cache_, *cell_.workload, ids, 0, tokens_);
    return ids;
  }

  // Copies sequences into bytes of their own: by forks if a fork copies, else from snapshots. Filling them again
  // would replay every eviction; where there is none, a GPU encodes faster than it takes rows out of a snapshot.
  void add_copies(int copies) {
    const std::vector<SequenceId> first = ids_.front();
    const SequenceId fork = cache_->fork(first.front());
    const bool share = shares_storage(*cache_, fork, first.front());
    cache_->release(fork);
    if (share && cell_.on_gpu() && never_evicts()) {
      for (int i = 0; i < copies; ++i) ids_.push_back(filled());
      return;
    }
    ids_.resize(1 + static_cast<size_t>(copies));
    for (const SequenceId id : first) {
      const std::optional<Snapshot> snapshot = share ? std::optional(cache_->snapshot(id)) : std::nullopt;
      for (int i = 1; i <= copies; ++i)
        ids_[static_cast<size_t>(i)].push_back(snapshot ? cache_->restore(*snapshot) : cache_->fork(id));
    }
  }

  bool never_evicts() const {
    for (int layer = 0; layer < cache_->shape().layers; ++layer) {
      if (cache_->keeps_rows(layer) && !retention_of(cache_->spec(layer)).keeps_all) return false;
    }
    return true;
  }

  workload::TokenFeed& feed_;
  const int64_t tokens_;
  const int attends_;
  results::ResultsFolder& results_;
  memory::Ledger ledger_;
  std::unique_ptr<Cache> cache_;
  std::vector<std::vector<SequenceId>> ids_;  // [replicas][sequences]
  size_t next_ = 0;
  std::vector<double> times_;
  int repetition_ = 0;
};

}  // namespace

void CellTask::handle_exception() {
  cell_.steps.clear();
  cell_.cold_us.clear();
  cell_.draft_us.clear();
  mark_exception(cell_);
}

void CellTask::take(int discarded, std::optional<double> disturbed_share) {
  if (disturbed_share) cell_.disturbed_shares.push_back(*disturbed_share);
  cell_.discarded += discarded;
}

results::Row sample_of(const Cell& cell, int repetition, size_t sample, const char* kind) {
  results::Row row = results::row_of(cell.result);
  row[kRepetition] = repetition;
  row[kSample] = static_cast<int64_t>(sample);
  row[kKind] = kind;
  return row;
}

std::unique_ptr<TimedTask> step_task(Cell& cell, workload::TokenFeed& feed, int64_t base, int64_t steps,
                                     results::ResultsFolder& results) {
  return std::make_unique<StepTask>(cell, feed, base, steps, results);
}

std::unique_ptr<TimedTask> cold_task(Cell& cell, workload::TokenFeed& feed, int64_t tokens, int attends,
                                     int replicas, results::ResultsFolder& results) {
  return std::make_unique<ColdTask>(cell, feed, tokens, attends, replicas, results);
}

}  // namespace kv::measure
