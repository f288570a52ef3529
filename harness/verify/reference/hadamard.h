// The Hadamard transform in FP64, by its definition: every entry of the matrix, and its product with the rows.
#pragma once

#include <span>

namespace kv::reference {

// rows [.., head_dim] times H in place; H[i][j] = (-1)^(ones of i & j) / sqrt(n) within blocks of n channels, the largest
// power of two that divides head_dim.
void hadamard(std::span<float> rows, int head_dim);

}  // namespace kv::reference
