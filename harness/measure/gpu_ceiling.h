// Measures a GPU's read bandwidth and clock between the repetitions of the cells that are compared with them.
#pragma once

#include <vector>

#include "harness/measure/cell.h"
#include "harness/measure/timed_tasks.h"
#include "kernels/cuda/gpu.h"

namespace kv::measure {

// Bytes that evict rows from the last-level cache when read: the GPU's L2, or the CPU's cache if `gpu` is null.
int64_t beyond_cache_bytes(const cuda::Gpu* gpu);
// Bytes so many that the L2 holds at most a sixteenth.
int64_t ceiling_bytes(const cuda::Gpu& gpu);

// Reads ceiling_bytes() with several numbers of blocks. The GPU must outlive the task.
class GpuCeilingTask : public TimedTask {
 public:
  explicit GpuCeilingTask(cuda::Gpu& gpu);
  int iterations() const override { return 1; }
  void begin(int) override {}
  double run() override;
  void end() override {}

  // The median with the best number of blocks.
  double gbps() const;
  // Fills a timed cell's columns of the ceiling and the clock.
  void write(Cell& cell) const;

 private:
  cuda::Gpu& gpu_;
  memory::Ledger ledger_;
  Block data_;
  std::vector<std::vector<double>> gbps_;  // [numbers of blocks][repetition]
  std::vector<int> mhz_;                   // [repetition]
};

}  // namespace kv::measure
