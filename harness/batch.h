// The batch experiment: ragged lengths, and what each variant reserves and does not use.
//
// A contiguous cache reserves the longest length for every sequence (padding); a paged one fills whole blocks
// (fragmentation). A pool that the variant leaves at its default gets as many blocks as the batch fills,
// since one with room for the longest length everywhere would be padding again.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/block.h"

namespace kv {

std::vector<std::string> batch_keys(const BlockPlan& plan);
std::vector<Row> run_batch_block(const BlockPlan& plan, const BlockLimits& limits, ResultsFolder& results);

// The spec with its pool, if it has one that is left at its default, set to `times` the blocks that sequences
// of these lengths fill.
Spec with_fitting_pool(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                       int times);

}  // namespace kv
