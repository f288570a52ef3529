// The roofline of attention: it takes at least as long as the machine takes to read the stored rows, and at
// least as long as it takes to do the multiply-adds (Williams, Waterman and Patterson, CACM 2009).
#pragma once

#include <cstdint>

namespace kv::measure {

// A score takes head_dim of them for each query head and kept row, and its weighted value as many.
struct MultiplyAdds {
  int64_t floats = 0;  // in f32
  int64_t codes = 0;   // of 16-bit integers: rows of integer codes
  int64_t total() const { return floats + codes; }
};

// How many the machine does in a second, in registers and nothing else.
struct MultiplyAddPeaks {
  double floats = 0, codes = 0;
};

// At these peaks. A kind that there is none of needs no peak.
double seconds_of(const MultiplyAdds& work, const MultiplyAddPeaks& peaks);

// The longer of the two times, and which one it is: "memory" or "compute".
struct Roofline {
  const char* limit;
  double us;
};
Roofline roofline_of(int64_t read_bytes, double read_gbps, double multiply_seconds);

}  // namespace kv::measure
