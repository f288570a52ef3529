// The Walsh–Hadamard transform of rows, scaled so that it keeps their lengths and dot products: a large channel is spread
// over all channels of its block, so that the steps of integer codes become smaller (QuaRot, Ashkboos et al. 2024,
// arXiv:2404.00456).
#pragma once

#include <cstdint>

namespace kv {

// Channels that are mixed with one another: the largest power of two that divides head_dim, so that 80 has blocks of 16.
inline int hadamard_block(int head_dim) { return head_dim & -head_dim; }

// to[row] = H from[row], [rows, head_dim]; H[i][j] = (-1)^popcount(i & j) / sqrt(block) within a block, and 0 outside.
// H is its own inverse. `to` may be `from`. Any sum is made in the same order everywhere, so bits do not depend on
// threads or instruction sets.
void hadamard_rows(const float* from, int64_t rows, int head_dim, float* to);

}  // namespace kv
