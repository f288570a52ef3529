// Disk space for a cell's files, known before any file is made.
#pragma once

#include <cstdint>
#include <string>

#include "harness/measure/sweep_point.h"

namespace kv::measure {

// Largest file that measures a disk's ceiling.
inline constexpr int64_t kMostCeilingBytes = int64_t{1} << 30;

struct DiskNeed {
  std::string folder;      // empty: the variant keeps no files
  int64_t bytes = 0;       // at the point's length, including the file that the tier is compared with
  int64_t free_bytes = 0;  // in the folder's file system
};
DiskNeed disk_need(const SweepPoint& point, const LayerSpecs& spec);

// The first of the layers' specs with several tiers; null: none has.
const Spec* spec_with_tiers(const LayerSpecs& specs);

}  // namespace kv::measure
