#include "harness/measure/tier_tasks.h"

#include <omp.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "harness/math/medians.h"
#include "harness/math/stats.h"
#include "harness/measure/disk_need.h"
#include "harness/measure/roofline_columns.h"
#include "harness/measure/roofline_tasks.h"
#include "harness/measure/tier_columns.h"
#include "harness/measure/time_columns.h"
#include "kernels/attention.h"
#include "variants/cache/spec.h"
#include "variants/placement/read_ahead.h"

namespace kv::measure {
namespace {

constexpr const char* kTierNames[] = {"hot", "warm"};

// Makes a repetition last some milliseconds.
int reads_of_a_repetition(int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>((16 << 20) / std::max<int64_t>(1, bytes), 1, 100));
}

}  // namespace

// Reads the rows of one tier in memory and nothing else, or attends to them.
class TierRowsTask : public CellTask {
 public:
  enum class What { kRead, kAttend };
  TierRowsTask(Cell& cell, Tier tier, What what, int64_t bytes)
      : CellTask(cell), tier_(tier), what_(what), bytes_(bytes) {}

  std::string name() const override {
    return cell_.key + (what_ == What::kRead ? " read " : " attend ") + kTierNames[static_cast<int>(tier_)];
  }
  int iterations() const override { return reads_of_a_repetition(bytes_); }

  // The rows may have moved since the last repetition.
  void begin(int) override {
    find_rows();
    if (what_ == What::kAttend) find_problems();
    reads_.warm_up([&] { return work(); });
  }
  double run() override {
    if (what_ == What::kAttend) return reads_.run(bytes_, [&] { return work(); });
    return reads_.run_in_turn(bytes_,
                              [&](cpu::ReadOrder order) { return cpu::read_stretches(parts_, order); });
  }
  void end() override {}
  double gbps() const { return reads_.gbps(); }

 private:
  // Finds the spans of this tier, head by head, and their stretches.
  void find_rows() {
    spans_.clear();
    rows_.clear();
    const CacheShape& shape = cell_.cache->shape();
    for (const SequenceId id : cell_.ids) {
      for (int layer = 0; layer < shape.layers; ++layer) {
        for (int head = 0; head < shape.kv_heads; ++head) {
          std::vector<Span>& own = spans_.emplace_back();
          for (const Span& span : cell_.cache->resident_spans(id, layer, head)) {
            if (cell_.ledger->tier_at(span.k.data) == tier_) own.push_back(span);
          }
        }
      }
    }
    for (const std::vector<Span>& own : spans_) {
      for (const Span& span : own) add_span(span, cell_.cache->shape(), rows_);
    }
    parts_ = cpu::share_out(rows_, static_cast<size_t>(omp_get_max_threads()));
    bytes_ = 0;
    for (const cpu::Stretch& stretch : rows_) bytes_ += static_cast<int64_t>(stretch.bytes);
  }

  // One query a query head; its values do not affect the time.
  void find_problems() {
    const CacheShape& shape = cell_.cache->shape();
    const int64_t values = int64_t{shape.group()} * shape.head_dim;
    q_.resize(static_cast<size_t>(values));
    for (size_t i = 0; i < q_.size(); ++i) q_[i] = 1.0f / static_cast<float>(1 + i % 7);
    out_.resize(spans_.size() * q_.size());
    problems_.clear();
    for (size_t i = 0; i < spans_.size(); ++i) {
      int64_t rows = 0;
      for (const Span& span : spans_[i]) rows += span.rows;
      if (rows == 0) continue;
      problems_.push_back({.q = q_.data(),
                           .out = out_.data() + i * q_.size(),
                           .spans = spans_[i],
                           .group = shape.group(),
                           .visible = rows});
    }
    const size_t bytes = attention_workspace_bytes(problems_, shape.head_dim);
    if (workspace_.size() < bytes) workspace_ = Block(scratch_, bytes, ByteKind::kWorkspace);
  }

  uint64_t work() {
    if (what_ == What::kRead) return cpu::read_stretches(parts_);
    attend(problems_, cell_.cache->shape().head_dim, workspace_.data());
    return 0;
  }

  const Tier tier_;
  const What what_;
  int64_t bytes_;
  std::vector<std::vector<Span>> spans_;  // [sequences, layers, kv_heads]
  std::vector<cpu::Stretch> rows_;
  std::vector<std::span<const cpu::Stretch>> parts_;  // by thread
  memory::Ledger scratch_;
  Block workspace_;
  std::vector<float> q_, out_;
  std::vector<HeadQueries> problems_;
  TimedReads reads_;
};

// Reads a file in the same folder from beginning to end as the cache reads its own: opened alike, requests of the
// same size, as many in flight. The bytes are not used.
class DiskReadTask : public CellTask {
 public:
  DiskReadTask(Cell& cell, int64_t bytes, int64_t mean_request) : CellTask(cell) {
    const int64_t request_bytes = SpillFile::aligned(mean_request);
    const TierSettings tiers = *tier_settings(*spec_with_tiers(cell.spec));
    file_.emplace(ledger_, tiers.folder, tiers.direct_io, request_bytes, tiers.link_gbps);
    ahead_.emplace(ledger_, *file_);
    std::byte* from = ahead_->idle_buffer();
    std::fill_n(from, request_bytes, std::byte{1});
    const int64_t slots = std::max<int64_t>(1, std::min(bytes, kMostCeilingBytes) / request_bytes);
    file_->prepare(slots);
    for (int64_t i = 0; i < slots; ++i) slots_.push_back(file_->take());
    std::ranges::sort(slots_);
    for (const int64_t slot : slots_) file_->write(slot, from);
    bytes_ = slots * request_bytes;
  }

  std::string name() const override { return cell_.key + " read disk"; }
  int iterations() const override { return std::min(20, reads_of_a_repetition(bytes_)); }
  void begin(int) override {}
  double run() override {
    return reads_.run(bytes_, [&] {
      ReadAhead::Run run(*ahead_, slots_);
      for (size_t i = 0; i < slots_.size(); ++i) {
        run.next();
        run.give_back();
      }
      return uint64_t{0};
    });
  }
  void end() override {}
  double gbps() const { return reads_.gbps(); }

 private:
  memory::Ledger ledger_;
  std::optional<SpillFile> file_;
  std::optional<ReadAhead> ahead_;
  std::vector<int64_t> slots_;
  int64_t bytes_ = 0;
  TimedReads reads_;
};

namespace {

// Over all requests of a repetition; median of the repetitions.
results::Number disk_gbps(const Cell& cell) {
  std::vector<double> all;
  for (const auto& repetition : cell.steps) {
    double bytes = 0, us = 0;
    for (const StepTimes& step : repetition) {
      bytes += static_cast<double>(step.disk_bytes);
      us += step.disk_us;
    }
    if (us > 0) all.push_back(bytes / us * 1e-3);
  }
  return all.empty() ? results::Number() : math::median(all);
}

// Share of the requests' time in which attention did not wait: median of the repetitions.
results::Number hidden_share(const Cell& cell) {
  std::vector<double> all;
  for (const auto& repetition : cell.steps) {
    double waited = 0, us = 0;
    for (const StepTimes& step : repetition) {
      waited += step.disk_wait_us;
      us += step.disk_us;
    }
    if (us > 0) all.push_back(std::max(0.0, 1.0 - waited / us));
  }
  return all.empty() ? results::Number() : math::median(all);
}

void write_share(const results::Number& gbps, const results::Number& ceiling, results::Number& share) {
  if (gbps && ceiling) share = *gbps / *ceiling;
}

// Hot and warm share the memory bus; the disk has its own; all may overlap.
void write_bound(results::Row& row) {
  const auto us = [](const results::Integer& bytes, const results::Number& gbps) {
    return bytes && gbps ? static_cast<double>(*bytes) / *gbps * 1e-3 : 0.0;
  };
  const std::pair<double, const char*> limits[] = {
      {us(row[kReadHotBytes], row[kHotCeilingGbps]) + us(row[kReadWarmBytes], row[kWarmCeilingGbps]),
       "memory"},
      {us(row[kReadDiskBytes], row[kDiskCeilingGbps]), "disk"},
      {static_cast<double>(row[kMultiplyAdds].value_or(0)) / row[kMultiplyAddPeakPerS].value_or(1e300) * 1e6,
       "compute"}};
  const auto& longest = *std::ranges::max_element(limits, {}, [](const auto& limit) { return limit.first; });
  row[kTierBound] = longest.second;
  row[kTierBoundUs] = longest.first;
  if (row[kAttendP50Us]) row[kTierBoundShare] = longest.first / *row[kAttendP50Us];
}

}  // namespace

TierTasks::TierTasks(const std::vector<Cell*>& group, std::vector<std::unique_ptr<TimedTask>>& tasks) {
  const auto add = [&](auto task) {
    const auto* added = task.get();
    tasks.push_back(std::move(task));
    return added;
  };
  for (Cell* cell : group) {
    if (!runs(*cell) || !has_tiers(cell->spec) || cell->ledger->gpu()) continue;
    OfCell& its = cells_[cell];
    const bool decoded =
        cell->spec.any([](const Spec& spec) { return codec_of(spec).make(spec.codec).read_copy; });
    const int64_t bytes[] = {cell->result[kReadHotBytes].value_or(0),
                             cell->result[kReadWarmBytes].value_or(0)};
    using What = TierRowsTask::What;
    for (const Tier tier : {Tier::kHot, Tier::kWarm}) {
      const auto t = static_cast<size_t>(tier);
      if (bytes[t] == 0) continue;
      its.read[t] = add(std::make_unique<TierRowsTask>(*cell, tier, What::kRead, bytes[t]));
      if (!decoded) its.attend[t] = add(std::make_unique<TierRowsTask>(*cell, tier, What::kAttend, bytes[t]));
    }
    if (cell->disk_request_bytes == 0) continue;
    attempt(*cell, [&] {
      its.disk = add(std::make_unique<DiskReadTask>(*cell, cell->result[kReadDiskBytes].value_or(0),
                                                    cell->disk_request_bytes));
    });
  }
}

void TierTasks::write(Cell& cell) const {
  const auto found = cells_.find(&cell);
  if (found == cells_.end()) return;
  const OfCell& its = found->second;
  results::Row& row = cell.result;
  const auto gbps = [](const auto* task) { return task ? results::Number(task->gbps()) : results::Number(); };
  row[kHotReadGbps] = gbps(its.attend[0]);
  row[kHotCeilingGbps] = gbps(its.read[0]);
  row[kWarmReadGbps] = gbps(its.attend[1]);
  row[kWarmCeilingGbps] = gbps(its.read[1]);
  row[kDiskCeilingGbps] = gbps(its.disk);
  row[kDiskReadGbps] = disk_gbps(cell);
  row[kDiskHiddenShare] = hidden_share(cell);
  write_share(row[kHotReadGbps], row[kHotCeilingGbps], row[kHotCeilingShare]);
  write_share(row[kWarmReadGbps], row[kWarmCeilingGbps], row[kWarmCeilingShare]);
  write_share(row[kDiskReadGbps], row[kDiskCeilingGbps], row[kDiskCeilingShare]);
  if (cell.timed_disk_bytes > 0 && cell.timed_device_bytes) {
    row[kDiskDeviceShare] =
        static_cast<double>(*cell.timed_device_bytes) / static_cast<double>(cell.timed_disk_bytes);
  }
  write_bound(row);
}

}  // namespace kv::measure
