// The largest of some scores, as runs of rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "variants/core/selection.h"

namespace kv::selection {

// The `count` (1 … as many as scores) candidates of the largest score, of equal ones the oldest; NaN counts as larger
// than all. Candidate i is rows [i * rows_each, (i + 1) * rows_each), the last one cut at `rows`. `order` is scratch
// of as many numbers as there are scores.
std::vector<RowRange> largest(std::span<const float> scores, std::span<int32_t> order, int64_t count,
                              int64_t rows_each, int64_t rows);

}  // namespace kv::selection
