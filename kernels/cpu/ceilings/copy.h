// A plain copy: the ceiling of append's bandwidth.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/encode.h"

namespace kv::cpu {

// Bytes of a unit: rows of f32 (whole vectors of 64), and what is stored of them (multiples of 2; data of 4).
struct UnitBytes {
  int64_t rows, data, meta;
};

// Moves the bytes of encode_units() without encoding: reads each job's rows, and writes the first of their
// bytes to the addresses of data and meta. The result depends on the bytes read, so that the compiler keeps
// every read.
uint64_t copy_units(const UnitBytes& bytes, std::span<const UnitJob> jobs);

}  // namespace kv::cpu
