// kernels/cpu without Highway, which a bare machine with a GPU may not have: the scalar paths that the vector
// ones equal.
#include <cstring>

#include "kernels/cpu/encode/convert.h"
#include "kernels/cpu/encode/encode_simd.h"
#include "kernels/cpu/isa.h"
#include "kernels/math.h"

namespace kv::cpu {

bool isa_is_scalar() { return true; }

void encode_units_simd(const Encoding&, int, std::span<const UnitJob>) {}  // never called, for that reason

void convert_f16_to_f32(const std::byte* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint16_t h;
    std::memcpy(&h, from + 2 * i, 2);
    to[i] = f16_to_f32(h);
  }
}

}  // namespace kv::cpu
