// Measures, between the steps, the bandwidths that a tier is compared with: attention over one memory tier's rows,
// reading these rows and nothing else, and reading a file as the cache reads its own.
#pragma once

#include <map>
#include <vector>

#include "harness/measure/bandwidth_task.h"
#include "harness/measure/cell.h"

namespace kv::measure {

// Tasks of a group's cells that have tiers, on the CPU. The list they were added to owns them; this object belongs to
// one group.
class TierTasks {
 public:
  TierTasks(const std::vector<Cell*>& group, TimedTasks& tasks);
  // Fills a timed cell's tier columns; its roofline must be set.
  void write(Cell& cell) const;

 private:
  struct OfCell {
    // Hot and warm; null if the tier holds no rows, or only rows that are attended to as a decoded copy.
    const BandwidthTask *attend[2]{}, *read[2]{};
    const BandwidthTask* disk = nullptr;  // null if nothing is read from a file
  };

  std::map<const Cell*, OfCell> cells_;
};

}  // namespace kv::measure
