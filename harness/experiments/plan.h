// Plans a sweep: multiplies a config's axes into sweep points and lets each one's experiment list its cells.
#pragma once

#include <memory>
#include <vector>

#include "harness/config/config.h"
#include "harness/measure/sweep_point.h"

namespace kv::experiments {

struct Sweep {
  std::vector<measure::SweepPoint> points;
  std::vector<std::unique_ptr<workload::Source>> sources;
};

// Throws std::invalid_argument for what the user can have got wrong and was not seen when the config was read.
Sweep plan_sweep(const config::Config& config, const memory::RunContext& context);

// Roughly how long a sweep point takes, for the time left: in tokens of a sequence of one cell.
double weight(const measure::SweepPoint& point);

}  // namespace kv::experiments
