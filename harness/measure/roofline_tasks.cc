#include "harness/measure/roofline_tasks.h"

#include <algorithm>
#include <bit>

#include "harness/math/stats.h"
#include "harness/measure/roofline.h"
#include "harness/memory/machine.h"
#include "kernels/cpu/ceilings/fma_peak.h"
#include "kernels/cpu/ceilings/stream.h"

namespace kv::measure {
namespace {

// Reading this much is what "cold" is compared with: well over twice the last-level cache.
int64_t cold_bytes() { return std::max<int64_t>(3 * memory::last_level_cache_bytes(), int64_t{256} << 20); }

// What one attend reads, or up to an eighth more, so that cells of about the same size share a task; the
// cold one where that is out of any cache anyway.
int64_t hot_bytes(const Cell& cell) {
  const auto bytes = static_cast<uint64_t>(std::max<int64_t>(4096, cell.read_bytes));
  const uint64_t step = std::max<uint64_t>(4096, std::bit_floor(bytes) / 8);
  return std::min(static_cast<int64_t>((bytes + step - 1) / step * step), cold_bytes());
}

}  // namespace

ReadBandwidthTask::ReadBandwidthTask(int64_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {
  block_ = Block(ledger_, static_cast<size_t>(bytes_), ByteKind::kPayload);
  std::fill_n(reinterpret_cast<uint64_t*>(block_.data()), bytes_ / 8, 0x0123456789abcdefu);
}

std::string ReadBandwidthTask::name() const { return "read bandwidth " + std::to_string(bytes_); }

// Enough that a repetition takes about a millisecond.
int ReadBandwidthTask::iterations() const {
  return static_cast<int>(std::clamp<int64_t>((16 << 20) / bytes_, 3, 200));
}

void ReadBandwidthTask::begin(int) { sum_ = sum_ + cpu::read_all(block_.data(), block_.size()); }

double ReadBandwidthTask::run() {
  Stopwatch watch;
  const uint64_t sum = cpu::read_all(block_.data(), block_.size());
  const double seconds = watch.lap();
  sum_ = sum_ + sum;
  gbps_.push_back(static_cast<double>(bytes_) / seconds * 1e-9);
  return seconds;
}

double ReadBandwidthTask::gbps() const { return math::median(gbps_); }

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

double PeakTask::per_second() const { return math::median(per_second_); }

double PeakTask::multiply_adds() const {
  return (kind_ == Kind::kFloats ? cpu::run_fma(rounds_) : cpu::run_dot16(rounds_)) / 2.0;
}

RooflineTasks::RooflineTasks(const std::vector<Cell*>& group, bool cold,
                             std::vector<std::unique_ptr<TimedTask>>& tasks)
    : cold_(cold) {
  const auto add_read = [&](int64_t bytes) {
    if (reads_.count(bytes)) return;
    auto task = std::make_unique<ReadBandwidthTask>(bytes);
    reads_[bytes] = task.get();
    tasks.push_back(std::move(task));
  };
  if (cold) add_read(cold_bytes());
  for (const Cell* cell : group) {
    if (runs(*cell)) add_read(hot_bytes(*cell));
  }
  const auto add_peak = [&](PeakTask::Kind kind) {
    auto task = std::make_unique<PeakTask>(kind);
    const PeakTask* peak = task.get();
    tasks.push_back(std::move(task));
    return peak;
  };
  floats_ = add_peak(PeakTask::Kind::kFloats);
  codes_ = add_peak(PeakTask::Kind::kCodes);
}

void RooflineTasks::write(Cell& cell) const {
  const double multiply_seconds =
      seconds_of(cell.multiply_adds, {floats_->per_second(), codes_->per_second()});
  cell.result.multiply_adds = cell.multiply_adds.total();
  cell.result.multiply_add_peak_per_s = static_cast<double>(cell.multiply_adds.total()) / multiply_seconds;
  results::CellResult& row = cell.result;
  const double hot_gbps = reads_.at(hot_bytes(cell))->gbps();
  const Roofline hot = roofline_of(cell.read_bytes, hot_gbps, multiply_seconds);
  row.ceiling_gbps = hot_gbps;
  row.bound = hot.limit;
  row.bound_us = hot.us;
  if (row.read_gbps) row.ceiling_share = *row.read_gbps / hot_gbps;
  if (row.attend_p50_us) row.bound_share = hot.us / *row.attend_p50_us;
  if (!cold_) return;
  const double cold_gbps = reads_.at(cold_bytes())->gbps();
  const Roofline cold = roofline_of(cell.read_bytes, cold_gbps, multiply_seconds);
  row.cold_ceiling_gbps = cold_gbps;
  row.cold_bound = cold.limit;
  row.cold_bound_us = cold.us;
  if (row.cold_read_gbps) row.cold_ceiling_share = *row.cold_read_gbps / cold_gbps;
  if (row.cold_attend_p50_us) row.cold_bound_share = cold.us / *row.cold_attend_p50_us;
}

}  // namespace kv::measure
