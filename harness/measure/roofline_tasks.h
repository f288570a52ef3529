// Measures, between the repetitions of attention, how fast the machine reads and how fast it multiplies and adds.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "harness/measure/bandwidth_task.h"
#include "harness/measure/cell.h"

namespace kv::measure {

// Stored rows that attention over these sequences reads: whole units of K and V with their scales and zero points,
// head by head in span order, in ranges of at most 16 KiB.
std::vector<cpu::ByteRange> stored_rows(Cache& cache, std::span<const SequenceId> ids);

// Adds one span's rows.
void add_span(const Span& span, const CacheShape& shape, std::vector<cpu::ByteRange>& rows);

// Does multiply-adds in registers and nothing else, on all threads.
class PeakTask : public TimedTask {
 public:
  enum class Kind { kFloats, kCodes };  // same as MultiplyAdds
  explicit PeakTask(Kind kind) : kind_(kind) {}
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
  RooflineTasks(const std::vector<Cell*>& group, bool cold, TimedTasks& tasks);
  // Fills a timed cell's roofline columns.
  void write(Cell& cell) const;
  double f32_multiply_adds_per_s() const { return floats_->per_second(); }

 private:
  std::map<const Cell*, const BandwidthTask*> hot_;  // its own rows, or as many bytes if they lie elsewhere
  const BandwidthTask* cold_ = nullptr;
  const PeakTask *floats_, *codes_;
};

}  // namespace kv::measure
