// Verdicts as people read them: on a terminal, and in Markdown.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/claims/claims.h"
#include "harness/claims/figure_result.h"

namespace kv::claims {

// `figures` in the order of the files.
std::string claims_table(const std::vector<ClaimFile>& files, std::span<const FigureResult> figures);
// Every figure, with its quote and its reason.
std::string claims_markdown(const std::vector<ClaimFile>& files, std::span<const FigureResult> figures);
// A line a claim.
std::string claims_summary(const std::vector<ClaimFile>& files, std::span<const FigureResult> figures);

}  // namespace kv::claims
