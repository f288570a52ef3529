// The state of linear layers (gated DeltaNet, kernels/delta_rule.h): a matrix a head in place of rows, of constant size
// however long the sequence. Kept in f32, as models keep it. The window of the short convolution before the recurrence is
// not part of it: who makes q, k and v holds that.
#pragma once

#include <cstdint>
#include <memory>

#include "variants/cache/cache.h"

namespace kv {

struct LinearShape {
  int key_heads = 0;    // heads of q and k
  int value_heads = 0;  // heads of v, each with a state; a multiple of key_heads
  int key_dim = 0;
  int value_dim = 0;
};

// Bytes of one layer of one sequence.
int64_t linear_state_bytes(const LinearShape& shape);

// A cache of `of.layers` such layers for `of.max_sequences` sequences. A step's inputs are q and k [key_heads, n,
// key_dim], v [value_heads, n, value_dim], alpha and beta [value_heads, n] and out [value_heads, n, value_dim]. append
// takes one token at a time; step takes any number. There are no rows: spans and kept are empty, spec throws
// std::logic_error. Throws std::invalid_argument for a shape that cannot be. The memory outlives the cache.
std::unique_ptr<Cache> build_linear_cache(const LinearShape& shape, const CacheShape& of, Memory& memory);

}  // namespace kv
