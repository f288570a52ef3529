// A GPU's read bandwidth and clock, measured between the repetitions of the cells that are compared with them.
#pragma once

#include <string>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/measure/timed_tasks.h"
#include "kernels/cuda/gpu.h"

namespace kv::measure {

// Bytes to read between two reads of the same rows, so that these have left the last-level cache: the GPU's L2, or the CPU's
// if `gpu` is null.
int64_t beyond_cache_bytes(const cuda::Gpu* gpu);
// Bytes of which the L2 holds at most a sixteenth.
int64_t ceiling_bytes(const cuda::Gpu& gpu);

// Reads ceiling_bytes() with each of several numbers of blocks. The GPU outlives this.
class GpuCeilingTask : public TimedTask {
 public:
  explicit GpuCeilingTask(cuda::Gpu& gpu);
  std::string name() const override { return "read bandwidth of the GPU"; }
  int iterations() const override { return 1; }
  void begin(int) override {}
  double run() override;
  void end() override {}

  // The best number of blocks' median.
  double gbps() const;
  // Fills the ceiling's and the clock's columns of a cell that has been timed.
  void write(Cell& cell) const;

 private:
  cuda::Gpu& gpu_;
  memory::Ledger ledger_;
  Block data_;
  std::vector<std::vector<double>> gbps_;  // [numbers of blocks][repetition]
  std::vector<int> mhz_;                   // [repetition]
};

}  // namespace kv::measure
