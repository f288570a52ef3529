// The batch experiment: ragged lengths, and what each variant reserves and does not use.
//
// A contiguous cache reserves the longest length for every sequence (padding); a paged one fills whole blocks
// (fragmentation). A pool that the variant leaves at its default gets as many blocks as the batch fills,
// since one with room for the longest length everywhere would be padding again.
#pragma once

#include <span>

#include "variants/cache/cache.h"

namespace kv::experiments {

// The spec with its pool, if it has one that is left at its default, set to `times` the blocks that sequences
// of these lengths fill.
Spec with_fitting_pool(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                       int times);

}  // namespace kv::experiments
