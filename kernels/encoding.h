// From rows of f32 to stored units and back, for every Format. This is the definition of each format's bytes.
//
//   kF32, kF16, kBf16   data: head_dim elements, no meta
//
// A unit is `encoding.group` rows. Everything rounds to nearest even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/span.h"

namespace kv {

// Bytes of one unit's codes, and of its scales and zero points.
int64_t unit_data_bytes(const Encoding& encoding, int head_dim);
int64_t unit_meta_bytes(const Encoding& encoding, int head_dim);

// rows [encoding.group, head_dim] -> one unit.
void encode_unit(const Encoding& encoding, int head_dim, const float* rows, std::byte* data, std::byte* meta);

// Row `row` (0 … group-1) of a unit -> out [head_dim].
void decode_row(const Encoding& encoding, int head_dim, const std::byte* data, const std::byte* meta, int row,
                float* out);

// The format's name in kernel columns and messages, for example "f16" or "token4".
std::string encoding_name(const Encoding& encoding);

}  // namespace kv
