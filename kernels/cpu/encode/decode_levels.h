// Rows of levels (mxfp8, mxfp4, nvfp4, turbo) to f32 on the vector units, bit for bit as the formats decode themselves.
// Private to kernels/.
#pragma once

#include "kernels/span.h"

namespace kv::cpu {

// FormatDescriptor::decode of such a format, on the active instruction set, which is not the scalar one.
void decode_levels(const Encoding& encoding, int head_dim, const std::byte* data, const std::byte* meta,
                   int first, int count, float* out);

}  // namespace kv::cpu
