// Weights times a few vectors: the matrix products of a decode step, which are a plain read of the weights.
//
// A library multiplies f32 by f32, or 16-bit numbers by 16-bit numbers; a model whose weights are 16-bit and
// whose activations are f32 would have to round one or widen the other into memory first
// (kernels/LOG.md has the figures).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/weights/weight_type.h"

namespace kv::cpu {

// `type`: kF32, kF16 or kBf16. y[t * y_stride + r] = sum over c of weights[r, c] * x[t, c], for weights [rows, cols] at any address and x [n, cols].
// Sums are in f32, and each is the same whatever the rows and vectors beside it. Four vectors share one read of the
// weights: for many, a library's blocked product is faster. On the calling thread.
void multiply_weights(const std::byte* weights, WeightType type, int64_t rows, int64_t cols, const float* x,
                      int64_t n, float* y, int64_t y_stride);

}  // namespace kv::cpu
