// The columns of placements with several tiers. What is not held apart by tier is as it was: bytes_disk, read_gbps.
#pragma once

#include <string_view>
#include <vector>

#include "harness/results/cell_result.h"

namespace kv::results {

// `all` and `steps`: the experiments that write bytes held, and bytes read by a step.
std::vector<Field<CellResult>> tier_fields(std::string_view all, std::string_view steps);

}  // namespace kv::results
