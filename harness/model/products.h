// Products of bf16 matrices, with the machine's instructions for them. kernels/cpu/weights/ has those of all other weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kv::model {

// True if the machine has instructions for bf16 (AVX512_BF16 or AMX), and oneDNN is there to use them.
bool can_multiply_bf16();
// y[t * y_stride + r] = sum over c of x[t, c] * weights[r, c], for x [n, cols] and weights [rows, cols] of bf16 numbers, with
// sums in f32. On the calling thread alone. std::logic_error if it cannot.
void multiply_bf16(const uint16_t* x, int64_t n, const std::byte* weights, int64_t rows, int64_t cols,
                   float* y, int64_t y_stride);

// For env.json: "kvlab, bf16 by oneDNN 2.6.3".
std::string product_library();

}  // namespace kv::model
