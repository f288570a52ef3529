// The errors that codecs declare, derived: relative L2 of a uniform grid over N(0,1) rows.
#pragma once

#include "variants/core/codec.h"

namespace kv {

// Numbers that share one grid: from `fewest` to `most` of them.
struct GridSize {
  int fewest, most;
};

// Rows of head_dim 32…512, for which codecs with a scale a row declare their errors.
inline constexpr GridSize kWholeRow{32, 512};

// `bits`-wide codes from the smallest to the largest number (affine), or of a step of absmax / (2^(bits-1) -
// 1) around 0 (symmetric, 2 bits or more).
Interval affine_error(int bits, GridSize size);
Interval symmetric_error(int bits, GridSize size);

}  // namespace kv
