// Converts rows of f32 to stored units and back on the CPU, with the active instruction set. kernels/format/
// defines the bytes; these functions produce the same ones faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/span.h"

namespace kv {

// Rows [encoding.group, head_dim] and the addresses of their unit. meta may be null if unit_meta_bytes is 0.
struct UnitJob {
  const float* rows;
  std::byte* data;
  std::byte* meta;
};

// Encodes each job's rows, in their order. The bytes are the same on every instruction set.
void encode_units(const Encoding& encoding, int head_dim, std::span<const UnitJob> jobs);
// The same for one unit.
void encode_unit(const Encoding& encoding, int head_dim, const float* rows, std::byte* data, std::byte* meta);

// Row `row` (0 … group-1) of a unit -> out [head_dim].
void decode_row(const Encoding& encoding, int head_dim, const std::byte* data, const std::byte* meta, int row,
                float* out);

// Rows [first, first + count) of a span's side -> out [count, head_dim].
void decode_rows(const Side& side, int head_dim, int64_t first, int64_t count, float* out);

}  // namespace kv
