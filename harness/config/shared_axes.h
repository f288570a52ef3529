// The axes that experiments share: a step's number of sequences and their length.
#pragma once

#include <array>

#include "harness/config/key.h"
#include "harness/results/cell_columns.h"

namespace kv::config {

extern const Axis<int64_t> kBatch, kSeqLen;
inline constexpr std::array<const AnyAxis*, 2> kLengthAxes{&kBatch, &kSeqLen};

}  // namespace kv::config
