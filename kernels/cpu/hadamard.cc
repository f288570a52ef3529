// Butterflies of all levels, the two lowest at once on four neighbours: from there on inner loops run over neighbours,
// which the compiler vectorises.
#include "kernels/hadamard.h"

#include <bit>
#include <cmath>

#include "kernels/threads.h"

namespace kv {
namespace {

void two_lowest_levels(const float* from, int block, float scale, float* to) {
  for (int i = 0; i < block; i += 4) {
    const float a = from[i] * scale, b = from[i + 1] * scale, c = from[i + 2] * scale,
                d = from[i + 3] * scale;
    const float ab = a + b, a_b = a - b, cd = c + d, c_d = c - d;
    to[i] = ab + cd;
    to[i + 1] = a_b + c_d;
    to[i + 2] = ab - cd;
    to[i + 3] = a_b - c_d;
  }
}

void transform(const float* from, int block, float scale, float* to) {
  two_lowest_levels(from, block, scale, to);
  for (int half = 4; half < block; half *= 2) {
    for (int first = 0; first < block; first += 2 * half) {
      float *low = to + first, *high = low + half;
      for (int i = 0; i < half; ++i) {
        const float sum = low[i] + high[i];
        high[i] = low[i] - high[i];
        low[i] = sum;
      }
    }
  }
}

}  // namespace

void flip_signs(float* rows, int64_t count, int head_dim) {
#pragma omp parallel for schedule(static) if (worth_threads(count * head_dim, kParallelElements))
  for (int64_t row = 0; row < count; ++row) {
    float* x = rows + row * head_dim;
    for (int i = 0; i < head_dim; ++i)
      x[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i]) ^ kRotationFlips[i]);
  }
}

void hadamard_row(const float* from, int head_dim, float* to) {
  const int block = hadamard_block(head_dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
  for (int first = 0; first < head_dim; first += block) transform(from + first, block, scale, to + first);
}

void hadamard_rows(const float* from, int64_t rows, int head_dim, float* to) {
#pragma omp parallel for schedule(static) if (worth_threads(rows * head_dim, kParallelElements))
  for (int64_t row = 0; row < rows; ++row) hadamard_row(from + row * head_dim, head_dim, to + row * head_dim);
}

}  // namespace kv
