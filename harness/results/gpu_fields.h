// The columns of times that a GPU measures itself, and of what runs on the CPU whatever the device.
#pragma once

#include <vector>

#include "harness/results/cell_result.h"

namespace kv::results {

std::vector<Field<CellResult>> gpu_fields();

}  // namespace kv::results
