// To and from ggml's own blocks, in which scale and minimum stand before their codes: 34 bytes for 32 q8_0 elements,
// 18 for q4_0. The bytes are the same; only their places differ.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/span.h"

namespace kv {

// Bytes of one block of a format of ggml's; any other format is a bug (std::logic_error).
int64_t ggml_block_bytes(Format format);

// One row of `head_dim` (a multiple of 32) elements: data and meta as in encoding.h <-> blocks [head_dim /
// 32].
void to_ggml_blocks(Format format, int head_dim, const std::byte* data, const std::byte* meta,
                    std::byte* blocks);
void from_ggml_blocks(Format format, int head_dim, const std::byte* blocks, std::byte* data, std::byte* meta);

}  // namespace kv
