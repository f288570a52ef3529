// Rows of levels (mxfp8, mxfp4, nvfp4, turbo, q4_1, q5_0, …) to f32 on the vector units, bit for bit as the formats decode
// themselves.
// Private to kernels/.
#pragma once

#include "kernels/span.h"

namespace kv::cpu {

// Rows of such a format, of any instruction set but the scalar one: data [count] and meta [count] -> out [count, head_dim].
void decode_level_rows(const Encoding& encoding, int head_dim, const std::byte* const* data,
                       const std::byte* const* meta, int count, float* out);

}  // namespace kv::cpu
