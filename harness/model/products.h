// Products of f32 or bf16 matrices, by the library that measured fastest (kernels/LOG.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kv::model {

// y[t * y_stride + r] = sum over c of x[t, c] * weights[r, c], for x [n, cols] and weights [rows, cols]. On the calling
// thread alone. A row's sums do not depend on its place among those of x, and from 16 rows on not on their number.
void multiply(const float* x, int64_t n, const float* weights, int64_t rows, int64_t cols, float* y,
              int64_t y_stride);

// True if the machine has instructions for bf16 (AVX512_BF16 or AMX), and the library uses them.
bool can_multiply_bf16();
// The same for x and weights of bf16 numbers, with sums in f32. std::logic_error if it cannot.
void multiply_bf16(const uint16_t* x, int64_t n, const std::byte* weights, int64_t rows, int64_t cols,
                   float* y, int64_t y_stride);

// For env.json: "oneDNN 2.6.3".
std::string product_library();

}  // namespace kv::model
