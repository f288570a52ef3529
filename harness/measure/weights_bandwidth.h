// Reads a model's weights and nothing else: the bound on a step's projections.
#pragma once

#include <vector>

#include "harness/measure/timed_reads.h"
#include "harness/measure/timing.h"
#include "harness/model/weights.h"
#include "kernels/cpu/ceilings/stream.h"

namespace kv::measure {

// Reads each matrix that a step multiplies with once, on all threads.
class WeightsBandwidthTask : public TimedTask {
 public:
  explicit WeightsBandwidthTask(const model::ModelWeights& weights);
  std::string name() const override { return "read bandwidth of the weights"; }
  int iterations() const override;
  void begin(int repetition) override;
  double run() override;
  void end() override {}
  int64_t bytes() const { return bytes_; }
  double gbps() const { return reads_.gbps(); }

 private:
  std::vector<cpu::Stretch> stretches_;
  std::vector<std::span<const cpu::Stretch>> parts_;  // by thread
  int64_t bytes_ = 0;
  TimedReads reads_;
};

}  // namespace kv::measure
