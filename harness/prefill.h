// The prefill experiment: a whole prompt into an empty cache, three ways.
//
//   materialised  the scores of all tokens against all, in memory at once: O(S^2) workspace
//   chunked       the prompt in chunks of C tokens, the scores of one chunk in memory: O(C S)
//   tiled         the cache's own attention, whose scores never leave a tile: O(1)
//
// All three store the prompt in the variant's cache; the first two attend to the prompt's own rows, as
// frameworks do, and the third to the rows as stored. Times are of storing and attending together.
#pragma once

#include <string>
#include <vector>

#include "harness/block.h"

namespace kv {

std::vector<std::string> prefill_keys(const BlockPlan& plan);
std::vector<Row> run_prefill_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results);

}  // namespace kv
