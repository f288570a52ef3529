// The columns of what attention reads of the rows that are kept.
#pragma once

#include <string_view>
#include <vector>

#include "harness/results/cell_result.h"

namespace kv::results {

// `all`, `outputs` and `judged`: the experiments that count bytes, compare outputs, and compare choices.
std::vector<Field<CellResult>> selection_fields(std::string_view all, std::string_view outputs,
                                                std::string_view judged);

}  // namespace kv::results
