#include "harness/bound.h"

namespace kv {

double seconds_of(const MultiplyAdds& work, const MultiplyAddPeaks& peaks) {
  double seconds = 0.0;
  if (work.floats > 0) seconds += static_cast<double>(work.floats) / peaks.floats;
  if (work.codes > 0) seconds += static_cast<double>(work.codes) / peaks.codes;
  return seconds;
}

Bound bound_of(int64_t read_bytes, double ceiling_gbps, double multiply_seconds) {
  const double memory_us = static_cast<double>(read_bytes) / ceiling_gbps * 1e-3;
  const double compute_us = multiply_seconds * 1e6;
  return compute_us > memory_us ? Bound{"compute", compute_us} : Bound{"memory", memory_us};
}

}  // namespace kv
