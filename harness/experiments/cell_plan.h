// Plans an experiment's cells: each is listed once, with every decision that needs no measurement.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "harness/measure/sweep_point.h"

namespace kv::experiments {

// The point's values of its experiment's keys.
inline const config::Settings& settings_of(const measure::SweepPoint& point) {
  return point.experiment->settings;
}

// Marks a cell that nothing has decided yet as unsupported, if there is a reason.
void refuse(measure::PlannedCell& cell, const std::string& reason);
// Adds a cell, marked as unsupported if no cache of this spec can run here or at this length. The reference is valid
// until the next cell is added.
measure::PlannedCell& add_cell(measure::SweepPoint& point, const LayerSpecs& spec,
                               const std::string& suffix = "");
// Adds a cell a variant. An A/A test adds the first twice, side by side so that both are in one group.
void add_variants(measure::SweepPoint& point, const std::string& suffix = "");
void add_variants_and_aa_test(measure::SweepPoint& point, const std::string& suffix = "");
// Adds a cell without a cache, if the config asks for one.
void add_uncached(measure::SweepPoint& point);
// The suffix of an A/A test's key.
std::string aa_suffix(const std::string& suffix);

using BytesOf = std::function<int64_t(const measure::PlannedCell& cell)>;  // at its peak

// Marks the cell as out of memory, with the figures, and returns false if its caches exceed their limit, if they and
// the `shared` bytes exceed the run's, or if its files exceed the disk's free space.
bool fit(const measure::SweepPoint& point, measure::PlannedCell& cell, int64_t needed_bytes,
         int64_t shared_bytes = 0);
// Decides memory for cells that are measured one after another.
void fit_alone(measure::SweepPoint& point, const BytesOf& needed_bytes);
// Decides memory for cells that are measured side by side, in several groups if not all fit; each group also holds
// `shared_bytes`.
void fit_side_by_side(measure::SweepPoint& point, int64_t shared_bytes, const BytesOf& needed_bytes);

}  // namespace kv::experiments
