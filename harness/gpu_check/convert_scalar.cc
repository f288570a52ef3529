// kernels/cpu/convert.h without Highway, which a bare machine with a GPU may not have: the scalar conversions
// that the vector ones equal.
#include "kernels/cpu/convert.h"

#include <cstring>

#include "kernels/math.h"

namespace kv {

void convert_f32_to_f16(const float* from, uint16_t* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = f32_to_f16(from[i]);
}

void convert_f16_to_f32(const std::byte* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t h;
    std::memcpy(&h, from + 2 * i, 2);
    to[i] = f16_to_f32(h);
  }
}

}  // namespace kv
