// Repeated reads between the repetitions of what is compared with them: the basis of measured bandwidths.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "harness/measure/timed_tasks.h"
#include "harness/model/weights.h"
#include "kernels/cpu/ceilings/stream.h"

namespace kv::measure {

struct Reads {
  int iterations;                 // of a repetition
  std::function<int64_t()> find;  // before each repetition: finds what to read, and returns its bytes
  std::function<uint64_t(cpu::ReadOrder order)> read;  // returns a sum of the bytes, so that they are read
  bool in_every_order = false;                         // in turn: the fastest is the ceiling
  bool warm_up = true;  // a first read of each repetition fills the caches and wakes the threads
};

// Reads and nothing else, on all threads.
class BandwidthTask : public CellTask {
 public:
  // `cell`: null where what is read is of no cell.
  BandwidthTask(Cell* cell, Reads reads) : CellTask(cell), reads_(std::move(reads)) {}
  int iterations() const override { return reads_.iterations; }
  void begin(int repetition) override;
  double run() override;
  void end() override {}
  // The median rate of the order in which it is highest.
  double gbps() const;

 private:
  const Reads reads_;
  int64_t bytes_ = 0;
  volatile uint64_t sum_ = 0;  // volatile, so that the compiler keeps the reads
  size_t turn_ = 0;
  std::vector<double> gbps_[std::size(cpu::kReadOrders)];
};

// Adds a task to a list, which owns it, and returns it.
template <class Task>
const Task* added(std::unique_ptr<Task> task, TimedTasks& tasks) {
  const Task* const added = task.get();
  tasks.push_back(std::move(task));
  return added;
}

// Reads ranges that `find` finds again before each repetition, since they may have moved.
std::unique_ptr<BandwidthTask> ranges_task(Cell* cell, int iterations,
                                           std::function<std::vector<cpu::ByteRange>()> find);
int64_t total_bytes(std::span<const cpu::ByteRange> ranges);

// So many reads that a repetition lasts as long as reading `all` bytes.
int reads_of(int64_t all, int64_t bytes, int least, int most);

// Reads each matrix that a model's step multiplies with once: the bound on its projections.
std::unique_ptr<BandwidthTask> weights_bandwidth_task(const model::ModelWeights& weights);

}  // namespace kv::measure
