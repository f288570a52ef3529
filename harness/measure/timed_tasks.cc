#include "harness/measure/timed_tasks.h"

#include <memory>

#include "harness/memory/machine.h"

namespace kv::measure {
namespace {

class SampledTask : public CellTask {
 public:
  SampledTask(Cell& cell, Samples& samples, Sampling sampling, results::ResultsFolder& results)
      : CellTask(&cell), cell_(cell), samples_(samples), its_(std::move(sampling)), results_(results) {}

  int iterations() const override { return its_.is_one_run ? 1 : static_cast<int>(its_.steps); }
  void begin(int repetition) override {
    repetition_ = repetition;
    times_.clear();
    if (its_.begin) its_.begin();
  }
  double run() override {
    double us = 0.0;
    for (int64_t i = 0; i < (its_.is_one_run ? its_.steps : 1); ++i) {
      times_.push_back(its_.step());
      us += times_.back().step_us();
    }
    return us * 1e-6;
  }
  bool discard() override {
    if (its_.repeats && its_.end) its_.end(times_);
    return its_.repeats;
  }
  void end() override {
    if (its_.end) its_.end(times_);
    std::vector<results::Row> rows;
    for (size_t i = 0; i < times_.size(); ++i) {
      results::Row& row = rows.emplace_back(results::row_of(cell_.result));
      row[kRepetition] = repetition_;
      row[kSample] = static_cast<int64_t>(i);
      row[kKind] = its_.kind;
      its_.write(cell_, times_[i], i, row);
    }
    results_.add(*its_.table, rows);
    samples_.push_back(times_);
  }
  void record_disturbance(int discarded, std::optional<double> share) override {
    if (!its_.is_elsewhere) CellTask::record_disturbance(discarded, share);
  }

 private:
  const Cell& cell_;
  Samples& samples_;
  const Sampling its_;
  results::ResultsFolder& results_;
  std::vector<StepTimes> times_;
  int repetition_ = 0;
};

void count_device_reads(Cell& cell, std::span<const StepTimes> times, const std::optional<int64_t>& before) {
  for (const StepTimes& step : times) cell.timed_disk_bytes += step.disk_bytes;
  const std::optional<int64_t> now = memory::device_read_bytes();
  if (now && before && cell.timed_device_bytes)
    *cell.timed_device_bytes += *now - *before;
  else
    cell.timed_device_bytes.reset();
}

bool shares_storage(Cache& cache, SequenceId a, SequenceId b) {
  const std::vector<Span> first = cache.spans(a, 0, 0), second = cache.spans(b, 0, 0);
  return !first.empty() && !second.empty() && first[0].k.data == second[0].k.data;
}

// Copies of a cell's cache, of which each attend reads another, so that its rows have left the last-level cache. A GPU
// times itself: uploads before the launches and fetches after them are not timed.
class ColdCopies {
 public:
  ColdCopies(Cell& cell, workload::TokenFeed& feed, int64_t tokens, int replicas)
      : cell_(cell), feed_(feed), tokens_(tokens), ledger_(INT64_MAX, cell.ledger->gpu()) {
    ModelShape shape(cell.cache->shape(), cell.kinds, cell.linear);
    shape.max_sequences = replicas * feed.sequences();
    shape.max_tokens = tokens;
    cache_ = build_cache(cell.spec, shape, ledger_);
    ids_.push_back(filled());
    if (replicas > 1) add_copies(replicas - 1);
    ledger_.time_gpu();
  }

  StepTimes attend() {
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
    return {.attend_us = gpu ? gpu->us : seconds * 1e6};
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

  Cell& cell_;
  workload::TokenFeed& feed_;
  const int64_t tokens_;
  memory::Ledger ledger_;
  std::unique_ptr<Cache> cache_;
  std::vector<std::vector<SequenceId>> ids_;  // [replicas][sequences]
  size_t next_ = 0;
};

}  // namespace

void CellTask::handle_exception() {
  if (!cell_) throw;
  cell_->steps.clear();
  cell_->cold.clear();
  mark_exception(*cell_);
}

void CellTask::record_disturbance(int discarded, std::optional<double> share) {
  if (!cell_) return;
  if (share) cell_->disturbed_shares.push_back(*share);
  cell_->discarded += discarded;
}

void write_whole(const Cell&, const StepTimes& times, size_t, results::Row& row) {
  row[kStepUs] = times.step_us();
}

void write_parts(const Cell& cell, const StepTimes& times, size_t step, results::Row& row) {
  row[kAppendUs] = times.append_us;
  row[kViewUs] = times.view_us;
  row[kAttendUs] = times.attend_us;
  write_whole(cell, times, step, row);
}

void write_attention(const Cell& cell, const StepTimes& times, size_t, results::Row& row) {
  (cell.on_gpu() ? row[kGpuUs] : row[kAttendUs]) = times.step_us();
}

std::unique_ptr<TimedTask> sampled(Cell& cell, Samples& samples, Sampling sampling,
                                   results::ResultsFolder& results) {
  return std::make_unique<SampledTask>(cell, samples, std::move(sampling), results);
}

std::vector<SequenceId> forks_of(Cell& cell) {
  std::vector<SequenceId> forks;
  for (const SequenceId id : cell.ids) forks.push_back(cell.cache->fork(id));
  return forks;
}

void release_all(Cell& cell, std::vector<SequenceId>& ids) {
  for (const SequenceId id : ids) cell.cache->release(id);
  ids.clear();
}

std::unique_ptr<TimedTask> step_task(Cell& cell, workload::TokenFeed& feed, int64_t base, int64_t steps,
                                     results::ResultsFolder& results) {
  struct Repetition {
    std::vector<SequenceId> forks;
    int64_t token;
    std::optional<int64_t> device_before;
  };
  const auto now = std::make_shared<Repetition>();
  const bool tiered = has_tiers(cell.spec);  // bytes that devices delivered cannot be taken back
  const auto begin = [=, &cell] {
    *now = {forks_of(cell), base, tiered ? memory::device_read_bytes() : std::nullopt};
  };
  const auto end = [=, &cell](std::span<const StepTimes> times) {
    if (tiered) count_device_reads(cell, times, now->device_before);
    release_all(cell, now->forks);
  };
  return sampled(cell, cell.steps,
                 {.kind = "step",
                  .steps = steps,
                  .step = [=, &cell, &feed] { return cell.step(feed, now->token++, now->forks, true); },
                  .begin = begin,
                  .end = end,
                  .repeats = !tiered,
                  .write = write_parts},
                 results);
}

std::unique_ptr<TimedTask> cold_task(Cell& cell, workload::TokenFeed& feed, int64_t tokens, int attends,
                                     int replicas, results::ResultsFolder& results) {
  const auto copies = std::make_shared<ColdCopies>(cell, feed, tokens, replicas);
  return sampled(cell, cell.cold,
                 {.kind = "cold",
                  .steps = attends,
                  .step = [copies] { return copies->attend(); },
                  .repeats = true,
                  .write = write_attention},
                 results);
}

}  // namespace kv::measure
