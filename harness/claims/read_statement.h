// Reads one statement of a claim file: a published figure with all it takes to check it.
#pragma once

#include <map>
#include <string>

#include "harness/claims/claims.h"
#include "harness/config/section.h"

namespace kv::claims {

using Texts = std::map<std::string, std::string>;

// A [model] table. What it does not say stays as CacheShape has it.
CacheShape read_model(config::Section& section);

// What a claim says, or one of its figures in place of it (null: it has none), with {column} replaced by the
// row's text. `model` and `define` are the file's. Throws std::invalid_argument: file, line, key, and what
// would be right.
Statement read_statement(config::Section& claim, config::Section* figure, const Texts& row,
                         const CacheShape& model, const Texts& define);

}  // namespace kv::claims
