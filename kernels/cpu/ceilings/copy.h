// Copies and nothing else: the ceiling that append's bandwidth is held against.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/encode.h"

namespace kv::cpu {

// Bytes of a unit: rows of f32 (whole vectors of 64), and what is stored of them (multiples of 2; data of 4).
struct UnitBytes {
  int64_t rows, data, meta;
};

// What encode_units() moves, without a thought: reads each job's rows, and writes the first of their bytes to
// where data and meta go. Returns something of what was read, so that no read can be left out.
uint64_t copy_units(const UnitBytes& bytes, std::span<const UnitJob> jobs);

}  // namespace kv::cpu
