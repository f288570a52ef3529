// The batch experiment: ragged lengths, and the bytes that each variant reserves without using.
//
// A contiguous cache reserves the longest length for every sequence (padding); a paged one fills whole blocks
// (fragmentation). A pool of default size gets as many blocks as the batch fills: with room for the longest length
// everywhere it would be padding again.
#pragma once

#include <span>

#include "variants/cache/cache.h"

namespace kv::experiments {

// The spec with its pool, if it has one of default size, set to `times` the blocks that sequences of these lengths
// fill.
Spec with_fitting_pool(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                       int times);

}  // namespace kv::experiments
