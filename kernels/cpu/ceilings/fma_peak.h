// Multiplies and adds in registers and nothing else: the ceilings that attention's arithmetic is held
// against. Both run about `rounds` rounds on independent sums on all threads, and return the operations done
// by all of them together: two for each multiply-add. Where the scalar path is forced they stay the best
// vector path's.
#pragma once

#include <cstdint>

namespace kv::cpu {

// Fused multiply-adds of f32, where the instruction set has them: what rows of floats are attended with.
double run_fma(int64_t rounds);

// Products of 16-bit integers, added up in 32 bits: what rows of integer codes are attended with. One
// instruction with VNNI, two without.
double run_dot16(int64_t rounds);

}  // namespace kv::cpu
