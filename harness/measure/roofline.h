// The roofline of attention (Williams, Waterman and Patterson, CACM 2009): attention takes at least the time to read
// the stored rows, and at least the time of its multiply-adds.
#pragma once

#include <cstdint>

namespace kv::measure {

// Each query head and kept row takes head_dim multiply-adds for the score and as many for the weighted value.
struct MultiplyAdds {
  int64_t floats = 0;  // in f32
  int64_t codes = 0;   // in 16-bit integers: rows of integer codes
  int64_t total() const { return floats + codes; }
};

// Multiply-adds that the machine does in a second, in registers and nothing else.
struct MultiplyAddPeaks {
  double floats = 0, codes = 0;
};

// Time at these peaks. A kind with no work needs no peak.
double seconds_of(const MultiplyAdds& work, const MultiplyAddPeaks& peaks);

// The longer of the two times, and its name: "memory" or "compute".
struct Roofline {
  const char* limit;
  double us;
};
Roofline roofline_of(int64_t read_bytes, double read_gbps, double multiply_seconds);

}  // namespace kv::measure
