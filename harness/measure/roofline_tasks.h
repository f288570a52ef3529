// What attention is compared with, measured between its repetitions: how fast the machine reads, and how fast
// it multiplies and adds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/measure/timing.h"
#include "harness/memory/ledger.h"

namespace kv::measure {

// Reading `bytes` and nothing else, on all threads.
class ReadBandwidthTask : public TimedTask {
 public:
  explicit ReadBandwidthTask(int64_t bytes);
  std::string name() const override;
  int iterations() const override;
  void begin(int repetition) override;
  double run() override;
  void end() override {}
  double gbps() const;

 private:
  const int64_t bytes_;
  memory::Ledger ledger_;
  Block block_;
  volatile uint64_t sum_ = 0;  // volatile, so that the reads cannot be left out
  std::vector<double> gbps_;
};

// Multiply-adds in registers and nothing else, on all threads.
class PeakTask : public TimedTask {
 public:
  enum class Kind { kFloats, kCodes };  // as in MultiplyAdds
  explicit PeakTask(Kind kind) : kind_(kind) {}
  std::string name() const override;
  int iterations() const override { return 1; }
  void begin(int repetition) override;
  double run() override;
  void end() override {}
  double per_second() const;

 private:
  double multiply_adds() const;  // does some, and says how many

  const Kind kind_;
  int64_t rounds_ = 1000;
  std::vector<double> per_second_;
};

// The tasks that a group of cells is compared with. They belong to the list that they were added to, and this
// to a group.
class RooflineTasks {
 public:
  // `cold`: out of the caches as well.
  RooflineTasks(const std::vector<Cell*>& group, bool cold, std::vector<std::unique_ptr<TimedTask>>& tasks);
  // Fills the roofline columns of a cell that has been timed.
  void write(Cell& cell) const;

 private:
  bool cold_;
  std::map<int64_t, const ReadBandwidthTask*> reads_;  // by bytes
  const PeakTask *floats_, *codes_;
};

}  // namespace kv::measure
