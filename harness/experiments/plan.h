// Plans a sweep: multiplies a config's axes into sweep points; each point's experiment lists its cells.
#pragma once

#include <memory>
#include <vector>

#include "harness/config/config.h"
#include "harness/measure/disk_need.h"
#include "harness/measure/sweep_point.h"

namespace kv::experiments {

struct Sweep {
  std::vector<measure::SweepPoint> points;
  std::vector<std::unique_ptr<workload::Source>> sources;
};

// Throws std::invalid_argument for user mistakes that reading the config could not see.
Sweep plan_sweep(const config::Config& config, const memory::RunContext& context);
// The points alone: no workload is opened, and no cell is listed.
Sweep outline(const config::Config& config, const memory::RunContext& context);
// Memory that the device, or the machine, has left.
int64_t available_bytes(const memory::RunContext& context);

// The most disk space that any sweep point takes: files of all cells of a group exist at once.
measure::DiskNeed most_disk(const Sweep& sweep);

// Rough time of a sweep point, for the remaining time: in tokens of a sequence of one cell.
double weight(const measure::SweepPoint& point);

}  // namespace kv::experiments
