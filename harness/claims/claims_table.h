// Verdicts on a terminal.
#pragma once

#include <span>
#include <string>

#include "harness/claims/figure_result.h"

namespace kv::claims {

// A table a claim, with the reasons that a reader needs first. `figures` in the order of their files.
std::string claims_table(std::span<const FigureResult> figures);

// The sources' own tables, in the order of their first figures, for a terminal `width` characters wide. A cell may have several
// checks: the first value that was computed is shown, and the first that was measured. Other verdicts than `reproduced` are footnotes.
std::string source_tables(std::span<const FigureResult> figures, size_t width);

}  // namespace kv::claims
