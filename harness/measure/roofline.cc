#include "harness/measure/roofline.h"

namespace kv::measure {

double seconds_of(const MultiplyAdds& work, const MultiplyAddPeaks& peaks) {
  double seconds = 0.0;
  if (work.floats > 0) seconds += static_cast<double>(work.floats) / peaks.floats;
  if (work.codes > 0) seconds += static_cast<double>(work.codes) / peaks.codes;
  return seconds;
}

Roofline roofline_of(int64_t read_bytes, double read_gbps, double multiply_seconds) {
  const double memory_us = static_cast<double>(read_bytes) / read_gbps * 1e-3;
  const double compute_us = multiply_seconds * 1e6;
  return compute_us > memory_us ? Roofline{"compute", compute_us} : Roofline{"memory", memory_us};
}

}  // namespace kv::measure
