// The claims that a command is about: chosen by name, or searched by words.
#pragma once

#include <string>
#include <vector>

#include "harness/claims/claims.h"

namespace kv::claims {

// Without names, all files of configs/claims; else files by stem, unique prefix or path, and claims as FILE/ID. Throws
// std::invalid_argument that lists the names there are.
std::vector<ClaimFile> choose_claims(const std::vector<std::string>& names);

// `kvlab reproduce --list`: a line a claim with all the words, below a line with its source, and a line a figure where it has
// several, at most 120 columns wide. A word is found at the beginning of words, in any case: in the name, title or document of
// the source, in the id, text, quote, setting or place of the claim, or in one of its figures. Throws std::invalid_argument
// where no claim has them all.
std::string claims_list(const std::vector<std::string>& words);

}  // namespace kv::claims
