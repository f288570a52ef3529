// `kvlab reproduce --list`: which claims there are, and which of them are about something.
#pragma once

#include <string>
#include <vector>

#include "harness/claims/claims.h"

namespace kv::claims {

// The names by which `kvlab reproduce` takes the claims that have a word beginning so, in any case: in the name, title or
// document of the source, in the id, text, quote or setting of the claim, or in one of its figures.
std::vector<std::string> claims_about(const std::vector<ClaimFile>& files, const std::string& word);

// A line a claim with all the words, below a line with its source, and a line a figure where it has several. At most 120
// columns. Throws std::invalid_argument where no claim has them.
std::string claims_list(const std::vector<ClaimFile>& files, const std::vector<std::string>& words);

}  // namespace kv::claims
