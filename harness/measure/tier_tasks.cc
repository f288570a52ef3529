#include "harness/measure/tier_tasks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "harness/math/medians.h"
#include "harness/math/stats.h"
#include "harness/measure/disk_need.h"
#include "harness/measure/roofline_tasks.h"
#include "harness/measure/tier_columns.h"
#include "harness/measure/time_columns.h"
#include "kernels/attention.h"
#include "variants/cache/spec.h"
#include "variants/placement/read_ahead.h"

namespace kv::measure {
namespace {

// Makes a repetition last some milliseconds.
int reads_of_a_repetition(int64_t bytes) { return reads_of(16 << 20, bytes, 1, 100); }

// The rows of a cell in one tier in memory.
class TierRows {
 public:
  TierRows(Cell& cell, Tier tier) : cell_(cell), tier_(tier) {}

  std::vector<cpu::ByteRange> ranges() {
    find_spans();
    std::vector<cpu::ByteRange> rows;
    for (const std::vector<Span>& own : spans_) {
      for (const Span& span : own) add_span(span, cell_.cache->shape(), rows);
    }
    return rows;
  }
  // Finds what attend() computes, and returns the bytes of its rows.
  int64_t find_problems() {
    const int64_t bytes = total_bytes(ranges());
    set_problems();
    return bytes;
  }
  uint64_t attend() {
    kv::attend(problems_, cell_.cache->shape().head_dim, workspace_.data());
    return 0;
  }

 private:
  // Head by head.
  void find_spans() {
    spans_.clear();
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
  }

  // One query a query head; its values do not affect the time.
  void set_problems() {
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

  Cell& cell_;
  const Tier tier_;
  std::vector<std::vector<Span>> spans_;  // [sequences, layers, kv_heads]
  memory::Ledger scratch_;
  Block workspace_;
  std::vector<float> q_, out_;
  std::vector<HeadQueries> problems_;
};

// Reads a file in the same folder from beginning to end as the cache reads its own: opened alike, requests of the
// same size, as many in flight. The bytes are not used.
class FileReads {
 public:
  FileReads(const Cell& cell, int64_t bytes, int64_t mean_request) {
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
  int64_t bytes() const { return bytes_; }
  uint64_t read() {
    ReadAhead::Run run(*ahead_, slots_);
    for (size_t i = 0; i < slots_.size(); ++i) {
      run.next();
      run.give_back();
    }
    return 0;
  }

 private:
  memory::Ledger ledger_;
  std::optional<SpillFile> file_;
  std::optional<ReadAhead> ahead_;
  std::vector<int64_t> slots_;
  int64_t bytes_ = 0;
};

std::unique_ptr<BandwidthTask> disk_task(Cell& cell, int64_t bytes, int64_t mean_request) {
  const auto file = std::make_shared<FileReads>(cell, bytes, mean_request);
  return std::make_unique<BandwidthTask>(
      &cell, Reads{.iterations = std::min(20, reads_of_a_repetition(file->bytes())),
                   .find = [file] { return file->bytes(); },
                   .read = [file](cpu::ReadOrder) { return file->read(); },
                   .warm_up = false});
}

// A value of the sum of a repetition's steps: median of the repetitions that read from files.
results::Number of_repetitions(const Cell& cell, double (*of)(const StepTimes& sum)) {
  std::vector<double> all;
  for (const auto& repetition : cell.steps) {
    StepTimes sum;
    for (const StepTimes& step : repetition) {
      sum.disk_bytes += step.disk_bytes;
      sum.disk_us += step.disk_us;
      sum.disk_wait_us += step.disk_wait_us;
    }
    if (sum.disk_us > 0) all.push_back(of(sum));
  }
  return all.empty() ? results::Number() : math::median(all);
}

double disk_gbps(const StepTimes& sum) { return static_cast<double>(sum.disk_bytes) / sum.disk_us * 1e-3; }
// Share of the requests' time in which attention did not wait.
double hidden_share(const StepTimes& sum) { return std::max(0.0, 1.0 - sum.disk_wait_us / sum.disk_us); }

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

TierTasks::TierTasks(const std::vector<Cell*>& group, TimedTasks& tasks) {
  for (Cell* cell : group) {
    if (!runs(*cell) || !has_tiers(cell->spec) || cell->ledger->gpu()) continue;
    OfCell& its = cells_[cell];
    const bool decoded =
        cell->spec.any([](const Spec& spec) { return codec_of(spec).make(spec.codec).read_copy; });
    const int64_t bytes[] = {cell->result[kReadHotBytes].value_or(0),
                             cell->result[kReadWarmBytes].value_or(0)};
    for (const Tier tier : {Tier::kHot, Tier::kWarm}) {
      const auto t = static_cast<size_t>(tier);
      if (bytes[t] == 0) continue;
      const int iterations = reads_of_a_repetition(bytes[t]);
      const auto rows = std::make_shared<TierRows>(*cell, tier);
      its.read[t] = added(ranges_task(cell, iterations, [rows] { return rows->ranges(); }), tasks);
      if (decoded) continue;
      const Reads attends{.iterations = iterations,
                          .find = [rows] { return rows->find_problems(); },
                          .read = [rows](cpu::ReadOrder) { return rows->attend(); }};
      its.attend[t] = added(std::make_unique<BandwidthTask>(cell, attends), tasks);
    }
    if (cell->disk_request_bytes == 0) continue;
    attempt(*cell, [&] {
      its.disk =
          added(disk_task(*cell, cell->result[kReadDiskBytes].value_or(0), cell->disk_request_bytes), tasks);
    });
  }
}

void TierTasks::write(Cell& cell) const {
  const auto found = cells_.find(&cell);
  if (found == cells_.end()) return;
  const OfCell& its = found->second;
  results::Row& row = cell.result;
  const auto gbps = [](const BandwidthTask* task) {
    return task ? results::Number(task->gbps()) : results::Number();
  };
  row[kHotReadGbps] = gbps(its.attend[0]);
  row[kHotCeilingGbps] = gbps(its.read[0]);
  row[kWarmReadGbps] = gbps(its.attend[1]);
  row[kWarmCeilingGbps] = gbps(its.read[1]);
  row[kDiskCeilingGbps] = gbps(its.disk);
  row[kDiskReadGbps] = of_repetitions(cell, disk_gbps);
  row[kDiskHiddenShare] = of_repetitions(cell, hidden_share);
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
