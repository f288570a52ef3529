// Reads one statement of a claim file: a published figure with all it takes to check it.
#pragma once

#include <optional>

#include "harness/claims/claims.h"
#include "harness/config/section.h"

namespace kv::claims {

// A [model] table. Keys that it lacks stay as CacheShape has them.
CacheShape read_model(config::Section& section);

// Reads the keys of a claim, or those of one of its figures in their place (null: it has none), with {column} replaced by the
// row's text. Nothing where a row leaves `published` empty: the source's table has no figure there. `model` and `define` are the file's. Throws std::invalid_argument: file, line, key, and what would be right.
std::optional<Statement> read_statement(config::Section& claim, config::Section* figure, const Texts& row,
                                        const CacheShape& model, const Texts& define);

}  // namespace kv::claims
