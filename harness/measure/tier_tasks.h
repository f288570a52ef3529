// What a tier's bandwidth is compared with, measured between the steps: attention over the rows of one tier in memory
// alone, reading these rows and nothing else, and reading a file as the cache reads its own.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/measure/timed_tasks.h"
#include "harness/measure/timing.h"

namespace kv::measure {

class TierRowsTask;
class DiskReadTask;

// The tasks of a group's cells that have tiers, on the CPU. They belong to the list that they were added to, and this
// to a group.
class TierTasks {
 public:
  TierTasks(const std::vector<Cell*>& group, std::vector<std::unique_ptr<TimedTask>>& tasks);
  // Fills the columns of a cell's tiers, once it has been timed and its roofline is there.
  void write(Cell& cell) const;

 private:
  struct OfCell {
    // Of hot and warm; null where the tier holds no rows, or no others than a decoded copy is attended to.
    const TierRowsTask *attend[2]{}, *read[2]{};
    const DiskReadTask* disk = nullptr;  // null where nothing is read from a file
  };

  std::map<const Cell*, OfCell> cells_;
};

}  // namespace kv::measure
