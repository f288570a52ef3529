// Whether the loss that a cache causes grows with the position, so that one measured at fewer tokens is too small.
#pragma once

#include <span>
#include <string>

#include "harness/results/row.h"

namespace kv::experiments {

// "Length: with each doubling of the position, from 256 to 8191, the loss grows for contiguous/kivi(bits=2) +0.042 nats (0.025 to
// 0.059): …; it does not surely change for contiguous/q4_0": of the longest readings of whole windows among `cells`, whose rows of
// positions.csv are among `positions`. Intervals hold together with 95 % (Bonferroni). Empty for fewer than three buckets of positions
// with intervals.
std::string loss_by_position(std::span<const results::Row> cells, std::span<const results::Row> positions);

}  // namespace kv::experiments
