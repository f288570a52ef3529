#include "harness/measure/roofline_tasks.h"

#include <omp.h>

#include <algorithm>
#include <bit>

#include "harness/math/stats.h"
#include "harness/measure/roofline.h"
#include "harness/measure/time_columns.h"
#include "harness/memory/machine.h"
#include "kernels/cpu/ceilings/fma_peak.h"
#include "kernels/format/encoding.h"

namespace kv::measure {
namespace {

// The read size that defines "cold": well over twice the last-level cache.
int64_t cold_bytes() { return std::max<int64_t>(3 * memory::last_level_cache_bytes(), int64_t{256} << 20); }

// Bytes that one attend reads, or up to an eighth more, so that cells of similar size share a task. Sizes beyond any
// cache use the cold task.
int64_t hot_bytes(const Cell& cell) {
  const auto bytes = static_cast<uint64_t>(std::max<int64_t>(4096, cell.read_bytes));
  const uint64_t step = std::max<uint64_t>(4096, std::bit_floor(bytes) / 8);
  return std::min(static_cast<int64_t>((bytes + step - 1) / step * step), cold_bytes());
}

constexpr int64_t kLongest = 16 << 10;  // longest range, so that threads share them evenly

// `units` of `unit_bytes`, `stride` apart.
void add_ranges(const std::byte* data, int64_t units, int64_t unit_bytes, int64_t stride,
                std::vector<cpu::ByteRange>& out) {
  if (!data || unit_bytes == 0) return;
  if (stride == unit_bytes) {
    unit_bytes *= units;
    units = 1;
  }
  for (int64_t unit = 0; unit < units; ++unit) {
    for (int64_t from = 0; from < unit_bytes; from += kLongest) {
      out.push_back(
          {data + unit * stride + from, static_cast<size_t>(std::min(kLongest, unit_bytes - from))});
    }
  }
}

}  // namespace

void add_span(const Span& span, const CacheShape& shape, std::vector<cpu::ByteRange>& rows) {
  const int head_dim = shape.head_dim;
  for (const Side* side : {&span.k, &span.v}) {
    if (side == &span.v && shape.is_latent()) continue;  // the same rows as K
    const int64_t whole = units(*side, span.rows);
    add_ranges(side->data, whole, unit_data_bytes(side->encoding, head_dim), side->stride, rows);
    add_ranges(side->meta, whole, unit_meta_bytes(side->encoding, head_dim), side->meta_stride, rows);
  }
}

std::vector<cpu::ByteRange> stored_rows(Cache& cache, std::span<const SequenceId> ids) {
  std::vector<cpu::ByteRange> rows;
  const CacheShape& shape = cache.shape();
  for (const SequenceId id : ids) {
    for (int layer = 0; layer < shape.layers; ++layer) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        for (const Span& span : cache.spans(id, layer, head)) add_span(span, shape, rows);
      }
    }
  }
  return rows;
}

namespace {

// Makes a repetition last about a millisecond.
int iterations_of(int64_t bytes) { return reads_of(16 << 20, bytes, 3, 200); }

// Reads a cell's own rows, which must be readable in place.
std::unique_ptr<BandwidthTask> rows_task(Cell& cell) {
  const int orders = static_cast<int>(std::size(cpu::kReadOrders));  // as often in each
  return ranges_task(&cell, iterations_of(cell.read_bytes) * orders,
                     [&cell] { return stored_rows(*cell.cache, cell.ids); });
}

std::unique_ptr<BandwidthTask> bytes_task(int64_t bytes) {
  struct Held {
    memory::Ledger ledger;
    Block block;
  };
  bytes = (bytes + 4095) / 4096 * 4096;
  const auto held = std::make_shared<Held>();
  held->block = Block(held->ledger, static_cast<size_t>(bytes), ByteKind::kPayload);
  std::fill_n(reinterpret_cast<uint64_t*>(held->block.data()), bytes / 8, 0x0123456789abcdefu);
  return std::make_unique<BandwidthTask>(
      nullptr,
      Reads{
          .iterations = iterations_of(bytes),
          .find = [bytes] { return bytes; },
          .read = [held](cpu::ReadOrder) { return cpu::read_all(held->block.data(), held->block.size()); }});
}

}  // namespace

// Wakes the threads. The first call also finds how many rounds take a millisecond, which makes the waking
// negligible: the least of three tries, since a thread may wait longer than that for its processor.
void PeakTask::begin(int repetition) {
  multiply_adds();
  if (repetition > 0) return;
  const auto seconds = [&] {
    Stopwatch watch;
    multiply_adds();
    return watch.lap();
  };
  while (std::min({seconds(), seconds(), seconds()}) < 1e-3) rounds_ *= 2;
}

double PeakTask::run() {
  Stopwatch watch;
  const double done = multiply_adds();
  const double seconds = watch.lap();
  per_second_.push_back(done / seconds);
  return seconds;
}

double PeakTask::per_second() const { return math::median(per_second_); }

double PeakTask::spread() const {
  const auto [slowest, fastest] = std::ranges::minmax(per_second_);
  return fastest / slowest;
}

double PeakTask::multiply_adds() const {
  return (kind_ == Kind::kFloats ? cpu::run_fma(rounds_) : cpu::run_dot16(rounds_)) / 2.0;
}

RooflineTasks::RooflineTasks(const std::vector<Cell*>& group, bool cold, TimedTasks& tasks) {
  std::map<int64_t, const BandwidthTask*> reads;  // by bytes
  const auto read_of = [&](int64_t bytes) {
    const BandwidthTask*& task = reads[bytes];
    if (!task) task = added(bytes_task(bytes), tasks);
    return task;
  };
  if (cold) cold_ = read_of(cold_bytes());
  for (Cell* cell : group) {
    if (runs(*cell))
      hot_[cell] = cell->reads_in_place ? added(rows_task(*cell), tasks) : read_of(hot_bytes(*cell));
  }
  floats_ = added(std::make_unique<PeakTask>(PeakTask::Kind::kFloats), tasks);
  codes_ = added(std::make_unique<PeakTask>(PeakTask::Kind::kCodes), tasks);
}

void RooflineTasks::write(Cell& cell) const {
  const double multiply_seconds =
      seconds_of(cell.multiply_adds, {floats_->per_second(), codes_->per_second()});
  cell.result[kMultiplyAdds] = cell.multiply_adds.total();
  cell.result[kMultiplyAddPeakPerS] = static_cast<double>(cell.multiply_adds.total()) / multiply_seconds;
  results::Row& row = cell.result;
  row[kMultiplyAddPeakSpread] = std::max(floats_->spread(), codes_->spread());
  const double hot_ceiling = hot_.at(&cell)->gbps();
  const Roofline hot = roofline_of(cell.read_bytes, hot_ceiling, multiply_seconds);
  row[kCeilingGbps] = hot_ceiling;
  row[kBound] = hot.limit;
  row[kBoundUs] = hot.us;
  if (row[kReadGbps]) row[kCeilingShare] = *row[kReadGbps] / hot_ceiling;
  if (row[kAttendP50Us]) row[kBoundShare] = hot.us / *row[kAttendP50Us];
  if (!cold_) return;
  const double cold_gbps = cold_->gbps();
  const Roofline cold = roofline_of(cell.read_bytes, cold_gbps, multiply_seconds);
  row[kColdCeilingGbps] = cold_gbps;
  row[kColdBound] = cold.limit;
  row[kColdBoundUs] = cold.us;
  if (row[kColdReadGbps]) row[kColdCeilingShare] = *row[kColdReadGbps] / cold_gbps;
  if (row[kColdAttendP50Us]) row[kColdBoundShare] = cold.us / *row[kColdAttendP50Us];
}

}  // namespace kv::measure
