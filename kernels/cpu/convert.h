// Bulk conversions on the vector units, equal bit for bit to the scalar ones in kernels/math.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kv {

// n elements, rounded to nearest even.
void convert_f32_to_f16(const float* from, uint16_t* to, int64_t n);

// n binary16 numbers at any address, exact.
void convert_f16_to_f32(const std::byte* from, float* to, int64_t n);

}  // namespace kv
