// The sources' own tables, in their rows and columns, with what was computed and measured beside each published figure.
#pragma once

#include <span>
#include <string>

#include "harness/claims/figure_result.h"

namespace kv::claims {

// Tables of all sources, in the order of their first figures, for a terminal `width` characters wide. A cell may have several checks: the first value
// that was computed is shown, and the first that was measured. Verdicts other than `reproduced` are footnotes.
std::string source_tables(std::span<const FigureResult> figures, size_t width);

}  // namespace kv::claims
