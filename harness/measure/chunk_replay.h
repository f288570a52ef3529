// Compares a cache's answers to a chunk with its answers to the same tokens one by one.
//
// Losses alone cannot decide this. A matrix product of n tokens sums in another order than a product of one, so K and
// V differ in their last bits. A policy that compares keys then drops another token (knorm: all keys of one word have
// one norm, RoPE or not), a codec rounds to the next code, and the predictions diverge for good. Here both caches get
// the same q, k and v, bit for bit: those of the chunked reading.
#pragma once

#include "harness/measure/teacher_forcing.h"
#include "harness/model/cached_model.h"

namespace kv::measure {

// Reads the first `length` tokens of the passages in chunks and gives every token of each chunk to a second cache of
// the spec alone. Returns the largest relative L2 difference of an output [q_heads, head_dim]; NaN if one is NaN.
// Scores that sum attention weights sum in another order for chunks than for single tokens: outputs are compared
// until a near tie makes the caches keep different tokens, which verify/policy_check.h judges. Throws std::bad_alloc.
double replay_difference(const model::Model& model, const Passages& passages, int64_t length,
                         const StepSchedule& schedule, const LayerSpecs& spec, model::Rotary rotary,
                         cuda::Gpu* gpu = nullptr);

}  // namespace kv::measure
