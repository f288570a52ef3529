// What experiments plan their cells with: each is listed once, with what is decided of it before anything is
// measured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "harness/measure/sweep_point.h"

namespace kv::experiments {

// Adds a cell; it is marked as unsupported already if no cache of this spec can run here, or not at this
// length. The reference lasts until the next is added.
measure::PlannedCell& add_cell(measure::SweepPoint& point, const LayerSpecs& spec,
                               const std::string& suffix = "");
// A cell a variant. With an A/A test the first is there twice, side by side so that the two are in one group.
void add_variants(measure::SweepPoint& point, const std::string& suffix = "");
void add_variants_and_aa_test(measure::SweepPoint& point, const std::string& suffix = "");
// A cell without a cache, if the config asks for one.
void add_uncached(measure::SweepPoint& point);
// The suffix of an A/A test's key.
std::string aa_suffix(const std::string& suffix);

using BytesOf = std::function<int64_t(const measure::PlannedCell& cell)>;  // at its peak

// Marks the cell as out of memory, with the figures, if its caches need more than they may use, or with what is
// `shared` more than the run may, or their files more than the disk has free: false then.
bool fit(const measure::SweepPoint& point, measure::PlannedCell& cell, int64_t needed_bytes,
         int64_t shared_bytes = 0);
// Cells that are measured one after another.
void fit_alone(measure::SweepPoint& point, const BytesOf& needed_bytes);
// Cells that are measured side by side, in groups where not all fit; each group holds `shared_bytes` besides.
void fit_side_by_side(measure::SweepPoint& point, int64_t shared_bytes, const BytesOf& needed_bytes);

}  // namespace kv::experiments
