#include "harness/measure/bandwidth_task.h"

#include <omp.h>

#include <algorithm>
#include <memory>

#include "harness/math/stats.h"

namespace kv::measure {

void BandwidthTask::begin(int) {
  bytes_ = reads_.find();
  if (reads_.warm_up) sum_ = sum_ + reads_.read(cpu::kReadOrders[0]);
}

double BandwidthTask::run() {
  const size_t order = reads_.in_every_order ? turn_++ % std::size(cpu::kReadOrders) : 0;
  Stopwatch watch;
  const uint64_t sum = reads_.read(cpu::kReadOrders[order]);
  const double seconds = watch.lap();
  sum_ = sum_ + sum;
  gbps_[order].push_back(static_cast<double>(bytes_) / seconds * 1e-9);
  return seconds;
}

double BandwidthTask::gbps() const {
  double best = 0.0;
  for (const std::vector<double>& rates : gbps_) {
    if (!rates.empty()) best = std::max(best, math::median(rates));
  }
  return best;
}

int64_t total_bytes(std::span<const cpu::ByteRange> ranges) {
  int64_t bytes = 0;
  for (const cpu::ByteRange& range : ranges) bytes += static_cast<int64_t>(range.bytes);
  return bytes;
}

std::unique_ptr<BandwidthTask> ranges_task(Cell* cell, int iterations,
                                           std::function<std::vector<cpu::ByteRange>()> find) {
  struct Shared {
    std::vector<cpu::ByteRange> ranges;
    std::vector<std::span<const cpu::ByteRange>> parts;  // by thread
  };
  const auto shared = std::make_shared<Shared>();
  const auto share_out = [shared, find = std::move(find)] {
    shared->ranges = find();
    shared->parts = cpu::share_out(shared->ranges, static_cast<size_t>(omp_get_max_threads()));
    return total_bytes(shared->ranges);
  };
  return std::make_unique<BandwidthTask>(
      cell, Reads{.iterations = iterations,
                  .find = share_out,
                  .read = [shared](cpu::ReadOrder order) { return cpu::read_ranges(shared->parts, order); },
                  .in_every_order = true});
}

int reads_of(int64_t all, int64_t bytes, int least, int most) {
  return static_cast<int>(std::clamp<int64_t>(all / std::max<int64_t>(1, bytes), least, most));
}

std::unique_ptr<BandwidthTask> weights_bandwidth_task(const model::ModelWeights& weights) {
  constexpr int64_t kPieceBytes = 64 << 10;  // length of a range, so that threads share them evenly
  std::vector<cpu::ByteRange> ranges;
  for (const model::WeightMatrix* m : weights.products()) {
    for (int64_t from = 0; from < m->bytes(); from += kPieceBytes)
      ranges.push_back({m->data() + from, static_cast<size_t>(std::min(kPieceBytes, m->bytes() - from))});
  }
  const int iterations = reads_of(128 << 20, total_bytes(ranges), 2, 100);  // about ten milliseconds
  return ranges_task(nullptr, iterations, [ranges] { return ranges; });
}

}  // namespace kv::measure
