// The columns of outputs' errors against FP64: a metric each, an interval, and the split by cause.
#pragma once

#include <string_view>
#include <vector>

#include "harness/results/cell_result.h"

namespace kv::results {

// `outputs`: the experiments that compare outputs.
std::vector<Field<CellResult>> error_fields(std::string_view outputs);

}  // namespace kv::results
