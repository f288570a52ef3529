// Verdicts on a terminal.
#pragma once

#include <span>
#include <string>

#include "harness/claims/figure_result.h"

namespace kv::claims {

// A table a claim, with the reasons that a reader needs first. `figures` in the order of their files.
std::string claims_table(std::span<const FigureResult> figures);

}  // namespace kv::claims
