#include "harness/measure/gpu_ceiling.h"

#include <algorithm>
#include <random>

#include "harness/math/stats.h"
#include "harness/measure/time_columns.h"
#include "harness/memory/machine.h"

namespace kv::measure {

int64_t beyond_cache_bytes(const cuda::Gpu* gpu) {
  return gpu ? 4 * static_cast<int64_t>(gpu->info().l2_bytes) : 2 * memory::last_level_cache_bytes();
}

int64_t ceiling_bytes(const cuda::Gpu& gpu) { return 4 * beyond_cache_bytes(&gpu); }

// A read may write its sum behind the bytes that it reads.
GpuCeilingTask::GpuCeilingTask(cuda::Gpu& gpu)
    : gpu_(gpu),
      ledger_(INT64_MAX, &gpu),
      data_(Block::of_rows(ledger_, static_cast<size_t>(ceiling_bytes(gpu)) + 256, ByteKind::kWorkspace)),
      gbps_(std::size(cuda::kReadBlocks)) {
  // Random bytes: memory may be faster with equal ones.
  std::vector<uint64_t> bytes(data_.size() / sizeof(uint64_t));
  std::mt19937_64 random(1);
  std::ranges::generate(bytes, random);
  gpu.copy(data_.data(), bytes.data(), bytes.size() * sizeof(uint64_t));
}

double GpuCeilingTask::run() {
  const int64_t bytes = static_cast<int64_t>(data_.size()) - 256;
  auto* sum = reinterpret_cast<uint32_t*>(data_.data() + bytes);
  double all_us = 0.0;
  mhz_.push_back(gpu_.sm_mhz());
  for (size_t i = 0; i < gbps_.size(); ++i) {
    const int blocks = cuda::kReadBlocks[i] * gpu_.info().multiprocessors;
    const double us = gpu_.time_us(cuda::Gpu::Timed::kGraph, [&] {
      gpu_.read_all({data_.data(), bytes / 16, sum}, blocks);
    });
    gbps_[i].push_back(static_cast<double>(bytes) / us * 1e-3);
    all_us += us;
  }
  return all_us * 1e-6;
}

double GpuCeilingTask::gbps() const {
  double best = 0.0;
  for (const std::vector<double>& of : gbps_) best = std::max(best, math::median(of));
  return best;
}

void GpuCeilingTask::write(Cell& cell) const {
  results::Row& row = cell.result;
  const auto [slowest, fastest] = std::ranges::minmax(mhz_);
  row[kGpuSmMhzLeast] = slowest;
  row[kGpuSmMhzMost] = fastest;
  row[kColdCeilingGbps] = gbps();
  if (row[kColdReadGbps]) row[kColdCeilingShare] = *row[kColdReadGbps] / gbps();
}

}  // namespace kv::measure
