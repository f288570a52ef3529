// Reads memory and nothing else: the ceiling that attention's bandwidth is held against.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kv::cpu {

// Adds up all of `bytes` (a multiple of 4096, 64-byte aligned) as 32-bit words on all threads, each thread
// over its own stretch in several streams at once, since one stream alone does not keep memory busy. Returns
// the sum, so that the reads cannot be left out.
uint64_t read_all(const std::byte* data, size_t bytes);

}  // namespace kv::cpu
