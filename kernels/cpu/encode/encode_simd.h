// The vector encoders: the bytes of the formats' own scalar ones, faster. Private to kernels/.
#pragma once

#include <span>

#include "kernels/encode.h"

namespace kv::cpu {

// Like kv::encode_units, on the active instruction set, which is not the scalar one.
void encode_units_simd(const Encoding& encoding, int head_dim, std::span<const UnitJob> jobs);

}  // namespace kv::cpu
