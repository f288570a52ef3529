// Which bits are stored: the encodings of K and V, and how many of the newest rows wait unencoded.
#pragma once

#include <cstdint>

#include "kernels/span.h"

namespace kv {

struct Interval {
  double low = 0.0, high = 0.0;
};

struct Codec {
  Encoding k, v;
  // The newest rows that stay raw (f16): at least this many once there are that many, at most `unit rows` - 1
  // more.
  int64_t residual = 0;
  // Every read decodes all rows to an f32 copy first, instead of inside attention.
  bool read_copy = false;
  // ||decoded - row|| / ||row|| over rows of N(0,1), of K and of V. Two-sided: an error below the floor means
  // that something else was stored than what the codec claims.
  Interval k_error, v_error;

  // Rows that are encoded and moved together.
  int64_t unit_rows() const { return k.group > v.group ? k.group : v.group; }
};

}  // namespace kv
