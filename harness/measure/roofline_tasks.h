// Measures, between the repetitions of attention, how fast the machine reads and how fast it multiplies and adds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/measure/timed_reads.h"
#include "harness/measure/timed_tasks.h"
#include "harness/measure/timing.h"
#include "harness/memory/ledger.h"
#include "kernels/cpu/ceilings/stream.h"

namespace kv::measure {

// Reads `bytes` and nothing else, on all threads.
class ReadBandwidthTask : public TimedTask {
 public:
  explicit ReadBandwidthTask(int64_t bytes);
  std::string name() const override;
  int iterations() const override;
  void begin(int repetition) override;
  double run() override;
  void end() override {}
  double gbps() const { return reads_.gbps(); }

 private:
  const int64_t bytes_;
  memory::Ledger ledger_;
  Block block_;
  TimedReads reads_;
};

// Stored rows that attention over these sequences reads: whole units of K and V with their scales and zero points,
// head by head in span order, in stretches of at most 16 KiB.
std::vector<cpu::Stretch> stored_rows(Cache& cache, std::span<const SequenceId> ids);

// Adds one span's rows.
void add_span(const Span& span, const CacheShape& shape, std::vector<cpu::Stretch>& rows);

// Reads a cell's own rows and nothing else, on all threads. The rows must be readable in place.
class RowsBandwidthTask : public CellTask {
 public:
  explicit RowsBandwidthTask(Cell& cell) : CellTask(cell) {}
  std::string name() const override { return cell_.key + " read bandwidth"; }
  int iterations() const override;
  void begin(int repetition) override;
  double run() override;
  void end() override {}
  double gbps() const { return reads_.gbps(); }

 private:
  std::vector<cpu::Stretch> rows_;
  std::vector<std::span<const cpu::Stretch>> parts_;  // by thread
  int64_t bytes_ = 0;
  TimedReads reads_;
};

// Does multiply-adds in registers and nothing else, on all threads.
class PeakTask : public TimedTask {
 public:
  enum class Kind { kFloats, kCodes };  // same as MultiplyAdds
  explicit PeakTask(Kind kind) : kind_(kind) {}
  std::string name() const override;
  int iterations() const override { return 1; }
  void begin(int repetition) override;
  double run() override;
  void end() override {}
  double per_second() const;
  double spread() const;  // fastest repetition over slowest

 private:
  double multiply_adds() const;  // does some and returns their number

  const Kind kind_;
  int64_t rounds_ = 1000;
  std::vector<double> per_second_;
};

// Tasks whose results a group's cells are compared with. The list they were added to owns them; this object belongs
// to one group.
class RooflineTasks {
 public:
  // `cold`: also measures reads from beyond the caches.
  RooflineTasks(const std::vector<Cell*>& group, bool cold, std::vector<std::unique_ptr<TimedTask>>& tasks);
  // Fills a timed cell's roofline columns.
  void write(Cell& cell) const;
  double f32_multiply_adds_per_s() const { return floats_->per_second(); }

 private:
  double hot_gbps(const Cell& cell) const;

  bool cold_;
  std::map<const Cell*, const RowsBandwidthTask*> rows_;
  std::map<int64_t, const ReadBandwidthTask*> reads_;        // by bytes: cold, and those of instead_
  std::map<const Cell*, const ReadBandwidthTask*> instead_;  // for rows that cannot be read in place
  const PeakTask *floats_, *codes_;
};

}  // namespace kv::measure
