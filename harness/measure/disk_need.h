// What a cell's files take on a disk, before any is made.
#pragma once

#include <cstdint>
#include <string>

#include "harness/measure/sweep_point.h"

namespace kv::measure {

// The most that a file which measures a disk's ceiling takes.
inline constexpr int64_t kMostCeilingBytes = int64_t{1} << 30;

struct DiskNeed {
  std::string folder;      // empty where a variant keeps no files
  int64_t bytes = 0;       // at the point's length, with the file that the tier is compared with
  int64_t free_bytes = 0;  // what the folder's file system has
};
DiskNeed disk_need(const SweepPoint& point, const LayerSpecs& spec);

// The layers' spec that has several tiers: the first, where they have several such. Null: none has.
const Spec* spec_with_tiers(const LayerSpecs& specs);

}  // namespace kv::measure
