// The budget experiment: error against bytes, every retention at equally many kept tokens, codecs beside
// them.
//
// One position says little: a query may happen to look where nothing was evicted. So errors are means over
// the last `steps` tokens of a sequence, each decoded and held against FP64. Nothing is timed.
#pragma once

#include "harness/block.h"

namespace kv {

std::vector<Row> run_budget_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results);

}  // namespace kv
