// Multiplies and adds in registers and nothing else: the ceiling that prefill's arithmetic is held against.
#pragma once

#include <cstdint>

namespace kv {

// Runs about `rounds` rounds of fused multiply-adds (where the instruction set has them) on independent sums
// on all threads; returns the floating-point operations done by all of them together.
double run_fma(int64_t rounds);

}  // namespace kv
