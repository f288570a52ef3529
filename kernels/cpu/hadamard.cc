// Butterflies of all levels, the two lowest at once on four neighbours: from there on inner loops run over neighbours,
// which the compiler vectorises.
#include "kernels/hadamard.h"

#include <cmath>

namespace kv {
namespace {

// Below this many elements a parallel loop costs more than it saves.
constexpr int64_t kParallelElements = 1 << 16;

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

void hadamard_rows(const float* from, int64_t rows, int head_dim, float* to) {
  const int block = hadamard_block(head_dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
#pragma omp parallel for schedule(static) if (rows * head_dim > kParallelElements)
  for (int64_t row = 0; row < rows; ++row) {
    for (int first = 0; first < head_dim; first += block)
      transform(from + row * head_dim + first, block, scale, to + row * head_dim + first);
  }
}

}  // namespace kv
