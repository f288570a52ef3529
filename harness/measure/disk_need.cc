#include "harness/measure/disk_need.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "variants/placement/spill_file.h"

namespace kv::measure {
namespace {

constexpr double kBeyondAnyDisk = 1e18;

// Bytes in files of all sequences at the point's length.
int64_t file_bytes(const SweepPoint& point, const LayerSpecs& spec) {
  // The closed form in integers could overflow.
  const double floats =
      sizeof(float) * value_count(point, 2.0 * shape_of(point).kv_heads, static_cast<double>(point.seq_len));
  if (floats > 1e15) return static_cast<int64_t>(std::min(floats, kBeyondAnyDisk));
  const std::vector<int64_t> lengths(static_cast<size_t>(point.batch), point.seq_len);
  return predicted_tiers(spec, cache_shape(point, point.batch), lengths).disk;
}

}  // namespace

const Spec* spec_with_tiers(const LayerSpecs& specs) {
  if (has_tiers(specs.fallback)) return &specs.fallback;
  for (const LayerException& e : specs.exceptions) {
    if (has_tiers(e.spec)) return &e.spec;
  }
  return nullptr;
}

DiskNeed disk_need(const SweepPoint& point, const LayerSpecs& spec) {
  const Spec* tiers = spec_with_tiers(spec);
  if (!tiers) return {};
  const int64_t bytes = file_bytes(point, spec);
  if (bytes == 0) return {};
  DiskNeed need{.folder = tier_settings(*tiers)->folder};
  need.bytes = bytes + std::min(bytes, kMostCeilingBytes);
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(need.folder, error);
  need.free_bytes = error ? 0 : static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX));
  return need;
}

}  // namespace kv::measure
