// Weights times many vectors. The vectors lie side by side in lanes, so weights are read where they lie, one number at a time,
// and nothing but the vectors is transposed, once for all weights.
#pragma once

#include <cstdint>

namespace kv::cpu {

// Floats that pack_vectors() writes for n vectors of `cols` values.
int64_t packed_size(int64_t n, int64_t cols);
// x [n, cols] to panels [cols, lanes], of as many vectors as a vector register has lanes; the last panel ends with copies of the
// last vector. For the instruction set in use. Threads share the work.
void pack_vectors(const float* x, int64_t n, int64_t cols, float* packed);
// y[t * y_stride + r] = sum over c of weights[r, c] * x[t, c], for weights [rows, cols]. Each output is one chain of multiply-adds
// in the order of c, the same whatever is beside it. On the calling thread.
void multiply_packed(const float* weights, int64_t rows, int64_t cols, const float* packed, int64_t n,
                     float* y, int64_t y_stride);

}  // namespace kv::cpu
