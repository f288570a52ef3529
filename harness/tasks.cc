#include "harness/tasks.h"

#include <algorithm>
#include <optional>

#include "harness/stats.h"
#include "kernels/fma_peak.h"
#include "kernels/stream.h"

namespace kv {
namespace {

// The columns that every table of samples begins with.
Row named_row(std::span<const Column> columns, const LiveCell& cell, int repetition) {
  Row row(columns);
  row.set("cell", cell.key);
  for (const char* column : {"variant", "seq_len", "batch"}) row.set(column, cell.row.text(column));
  row.set("repetition", repetition);
  return row;
}

// Decode steps on a fork of the base sequences, so that every repetition starts from the same state.
class StepTask : public TimedTask {
 public:
  StepTask(LiveCell& cell, TokenFeed& feed, int64_t base, int64_t steps, ResultsFolder& results)
      : cell_(cell), feed_(feed), base_(base), steps_(steps), results_(results) {}

  std::string name() const override { return cell_.key; }
  int iterations() const override { return static_cast<int>(steps_); }

  void begin(int repetition) override {
    repetition_ = repetition;
    token_ = base_;
    times_.clear();
    for (const SequenceId id : cell_.ids) forks_.push_back(cell_.cache->fork(id));
  }

  double run() override {
    const StepTimes times = cell_.step(feed_, token_++, forks_, true);
    times_.push_back(times);
    return times.step_us() * 1e-6;
  }

  void end() override {
    for (const SequenceId id : forks_) cell_.cache->release(id);
    forks_.clear();
    std::vector<Row> rows;
    for (size_t i = 0; i < times_.size(); ++i) {
      Row row = sample_row(cell_, repetition_, i, "step");
      row.set("append_us", times_[i].append_us);
      row.set("view_us", times_[i].view_us);
      row.set("attend_us", times_[i].attend_us);
      row.set("step_us", times_[i].step_us());
      rows.push_back(std::move(row));
    }
    results_.add_samples(rows);
    cell_.steps.push_back(times_);
  }

 private:
  LiveCell& cell_;
  TokenFeed& feed_;
  const int64_t base_, steps_;
  ResultsFolder& results_;
  std::vector<SequenceId> forks_;
  std::vector<StepTimes> times_;
  int64_t token_ = 0;
  int repetition_ = 0;
};

bool shares_storage(Cache& cache, SequenceId a, SequenceId b) {
  const std::vector<Span> first = cache.spans(a, 0, 0), second = cache.spans(b, 0, 0);
  return !first.empty() && !second.empty() && first[0].k.data == second[0].k.data;
}

// Attention alone, each time over another copy of the cache, so that its rows have left the last-level cache.
class ColdTask : public TimedTask {
 public:
  ColdTask(LiveCell& cell, TokenFeed& feed, int64_t tokens, int attends, int replicas, ResultsFolder& results)
      : cell_(cell), feed_(feed), tokens_(tokens), attends_(attends), results_(results) {
    CacheShape shape = cell.cache->shape();
    shape.max_sequences = replicas * feed.sequences();
    shape.max_tokens = tokens;
    cache_ = build_cache(cell.spec, shape, ledger_);
    ids_.push_back(filled());
    if (replicas > 1) add_copies(replicas - 1);
  }

  std::string name() const override { return cell_.key + " cold"; }
  int iterations() const override { return attends_; }

  void begin(int repetition) override {
    repetition_ = repetition;
    times_.clear();
  }

  double run() override {
    const std::vector<SequenceId>& ids = ids_[next_++ % ids_.size()];
    double seconds = 0.0;
    for (int layer = 0; layer < cache_->shape().layers; ++layer) {
      const auto inputs = feed_.inputs(layer, tokens_ - 1, ids);
      Stopwatch watch;
      cache_->view(layer, inputs);
      cache_->attend(layer, inputs);
      seconds += watch.lap();
    }
    times_.push_back(seconds * 1e6);
    return seconds;
  }

  void end() override {
    std::vector<Row> rows;
    for (size_t i = 0; i < times_.size(); ++i) {
      Row row = sample_row(cell_, repetition_, i, "cold");
      row.set("attend_us", times_[i]);
      rows.push_back(std::move(row));
    }
    results_.add_samples(rows);
    cell_.cold_us.push_back(times_);
  }

 private:
  std::vector<SequenceId> filled() {
    std::vector<SequenceId> ids;
    for (int i = 0; i < feed_.sequences(); ++i) ids.push_back(cache_->add_sequence());
    prefill(*cache_, *cell_.workload, ids, 0, tokens_);
    return ids;
  }

  // Sequences of their own bytes that hold what the first ones do: forks where a fork copies, else from
  // snapshots. Filling them again would replay every eviction.
  void add_copies(int copies) {
    const std::vector<SequenceId> first = ids_.front();
    const SequenceId fork = cache_->fork(first.front());
    const bool share = shares_storage(*cache_, fork, first.front());
    cache_->release(fork);
    ids_.resize(1 + static_cast<size_t>(copies));
    for (const SequenceId id : first) {
      const std::optional<Snapshot> frozen = share ? std::optional(cache_->freeze(id)) : std::nullopt;
      for (int i = 1; i <= copies; ++i)
        ids_[static_cast<size_t>(i)].push_back(frozen ? cache_->unfreeze(*frozen) : cache_->fork(id));
    }
  }

  LiveCell& cell_;
  TokenFeed& feed_;
  const int64_t tokens_;
  const int attends_;
  ResultsFolder& results_;
  Ledger ledger_;
  std::unique_ptr<Cache> cache_;
  std::vector<std::vector<SequenceId>> ids_;  // [replicas][sequences]
  size_t next_ = 0;
  std::vector<double> times_;
  int repetition_ = 0;
};

// A growth run from an empty cache, every step recorded. One iteration is a whole run.
class GrowthTask : public TimedTask {
 public:
  GrowthTask(LiveCell& cell, int batch, bool attend, const std::vector<GrowthBytes>& bytes,
             ResultsFolder& results)
      : cell_(cell), attend_(attend), feed_(*cell.workload, batch), bytes_(bytes), results_(results) {}

  std::string name() const override { return cell_.key; }
  int iterations() const override { return 1; }
  void begin(int repetition) override {
    repetition_ = repetition;
    for (int i = 0; i < feed_.sequences(); ++i) ids_.push_back(cell_.cache->add_sequence());
  }
  double run() override {
    times_.clear();
    double us = 0.0;
    const int64_t tokens = static_cast<int64_t>(bytes_.size());
    for (int64_t t = 0; t < tokens; ++t) {
      if (t % kGrowthLoad == 0) feed_.load(t, std::min(kGrowthLoad, tokens - t));
      times_.push_back(cell_.step(feed_, t, ids_, attend_));
      us += times_.back().step_us();
    }
    return us * 1e-6;
  }
  void end() override {
    for (const SequenceId id : ids_) cell_.cache->release(id);
    ids_.clear();
    std::vector<Row> rows;
    for (size_t t = 0; t < times_.size(); ++t) rows.push_back(step_row(t));
    results_.add_growth(rows);
    cell_.steps.push_back(times_);
  }

 private:
  Row step_row(size_t t) const {
    Row row = named_row(growth_columns(), cell_, repetition_);
    row.set("token", static_cast<int64_t>(t) + 1);
    row.set("append_us", times_[t].append_us);
    row.set("view_us", times_[t].view_us);
    if (attend_) row.set("attend_us", times_[t].attend_us);
    row.set("step_us", times_[t].step_us());
    row.set("bytes_payload", bytes_[t].payload);
    row.set("bytes_metadata", bytes_[t].metadata);
    row.set("bytes_slack", bytes_[t].slack);
    row.set("bytes_workspace", bytes_[t].workspace);
    row.set("bytes_copied", bytes_[t].copied);
    return row;
  }

  LiveCell& cell_;
  const bool attend_;
  TokenFeed feed_;
  const std::vector<GrowthBytes>& bytes_;
  ResultsFolder& results_;
  std::vector<SequenceId> ids_;
  std::vector<StepTimes> times_;
  int repetition_ = 0;
};

}  // namespace

Row sample_row(const LiveCell& cell, int repetition, size_t sample, const char* kind) {
  Row row = named_row(sample_columns(), cell, repetition);
  row.set("sample", static_cast<int64_t>(sample));
  row.set("kind", kind);
  return row;
}

std::unique_ptr<TimedTask> step_task(LiveCell& cell, TokenFeed& feed, int64_t base, int64_t steps,
                                     ResultsFolder& results) {
  return std::make_unique<StepTask>(cell, feed, base, steps, results);
}

std::unique_ptr<TimedTask> cold_task(LiveCell& cell, TokenFeed& feed, int64_t tokens, int attends,
                                     int replicas, ResultsFolder& results) {
  return std::make_unique<ColdTask>(cell, feed, tokens, attends, replicas, results);
}

std::unique_ptr<TimedTask> growth_task(LiveCell& cell, int batch, bool attend,
                                       const std::vector<GrowthBytes>& bytes, ResultsFolder& results) {
  return std::make_unique<GrowthTask>(cell, batch, attend, bytes, results);
}

CeilingTask::CeilingTask(int64_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {
  block_ = Block(ledger_, static_cast<size_t>(bytes_), ByteKind::kPayload);
  std::fill_n(reinterpret_cast<uint64_t*>(block_.data()), bytes_ / 8, 0x0123456789abcdefu);
}

std::string CeilingTask::name() const { return "read ceiling " + std::to_string(bytes_); }

// Enough that a repetition takes about a millisecond.
int CeilingTask::iterations() const {
  return static_cast<int>(std::clamp<int64_t>((16 << 20) / bytes_, 3, 200));
}

void CeilingTask::begin(int) { sum_ = sum_ + read_all(block_.data(), block_.size()); }

double CeilingTask::run() {
  Stopwatch watch;
  const uint64_t sum = read_all(block_.data(), block_.size());
  const double seconds = watch.lap();
  sum_ = sum_ + sum;
  gbps_.push_back(static_cast<double>(bytes_) / seconds * 1e-9);
  return seconds;
}

double CeilingTask::gbps() const { return median(gbps_); }

std::string PeakTask::name() const {
  return kind_ == Kind::kFloats ? "multiply-add peak, f32" : "multiply-add peak, 16-bit integers";
}

// Wakes the threads; the first time it also finds how many rounds take a millisecond, in which that would be
// lost.
void PeakTask::begin(int repetition) {
  if (repetition > 0) return static_cast<void>(multiply_adds());
  Stopwatch watch;
  while (multiply_adds(), watch.lap() < 1e-3) rounds_ *= 2;
}

double PeakTask::run() {
  Stopwatch watch;
  const double done = multiply_adds();
  const double seconds = watch.lap();
  per_second_.push_back(done / seconds);
  return seconds;
}

double PeakTask::per_second() const { return median(per_second_); }

double PeakTask::multiply_adds() const {
  return (kind_ == Kind::kFloats ? run_fma(rounds_) : run_dot16(rounds_)) / 2.0;
}

}  // namespace kv
