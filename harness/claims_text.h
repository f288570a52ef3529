// Verdicts as people read them: on a terminal, and in Markdown.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/claims.h"
#include "harness/results.h"

namespace kv {

// `figures` have claim_columns(), in the order of the files.
std::string claims_table(const std::vector<ClaimFile>& files, std::span<const Row> figures);
// Every figure, with its quote and its reason.
std::string claims_markdown(const std::vector<ClaimFile>& files, std::span<const Row> figures);
// A line a claim.
std::string claims_summary(const std::vector<ClaimFile>& files, std::span<const Row> figures);

}  // namespace kv
