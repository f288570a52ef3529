// f16 to f32 in bulk on the vector units, bit for bit as f16_to_f32 in kernels/math.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kv::cpu {

// n binary16 numbers at any address, exact.
void convert_f16_to_f32(const std::byte* from, float* to, int64_t n);

}  // namespace kv::cpu
