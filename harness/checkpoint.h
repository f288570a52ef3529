// The checkpoint experiment: what it costs to set a sequence aside, take it up again, and fork it, against
// length.
//
// Before anything is timed, a copy that each operation made must go on bit for bit as the sequence it came
// from.
#pragma once

#include "harness/block.h"

namespace kv {

std::vector<Row> run_checkpoint_block(const BlockPlan& plan, const BlockLimits& limits,
                                      ResultsFolder& results);

}  // namespace kv
