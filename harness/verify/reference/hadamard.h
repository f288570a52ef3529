// Rotations by their definitions: the Hadamard transform in FP64, which computes every entry of the matrix and
// multiplies the rows by it, and random signs.
#pragma once

#include <span>

namespace kv::reference {

// rows [.., head_dim] times H in place; H[i][j] = (-1)^(ones of i & j) / sqrt(n) within blocks of n channels, the largest
// power of two that divides head_dim.
void hadamard(std::span<float> rows, int head_dim);

// Changes the sign of channel i where number i of SplitMix64 from state 0 (Steele, Lea and Flood 2014) has its top bit set.
void flip_signs(std::span<float> rows, int head_dim);

}  // namespace kv::reference
