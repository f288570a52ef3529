// The time that padding costs a ragged batch. Every sequence is as long as the longest, with rows of zeros in front
// (as generation pads, so that new tokens line up); attention covers all rows, and a mask gives padding no weight.
// The other arm is the same attention without padding, each sequence over its own rows.
//
// Both keep f32 rows in a contiguous cache and scores in memory, as code without ragged kernels does: they differ
// only in the padding and its mask.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/verify/verify.h"

namespace kv::experiments {

// Arms of a batch cell; 0 is a variant with its own attention.
enum PaddingArm : size_t { kUnpadded = 1, kPadded = 2 };

// Adds both arms to a sweep point's cells.
void add_padding_arms(measure::SweepPoint& point);

// Padding rows in front of each sequence; none if the arm has none.
std::vector<int64_t> padding_of(const measure::SweepPoint& point, size_t arm);

// Appends `rows` rows of zeros to every layer of the sequence.
void append_padding(Cache& cache, SequenceId sequence, int64_t rows);

// Attention for an arm's steps. The i-th input of each call belongs to the sequence with padding[i]; mask and scores
// are workspace of `memory`.
measure::Attend score_attention(Cache& cache, std::span<const int64_t> padding, Memory& memory);

// Compares the outputs of the feed's step `token` with FP64 over the workload's own rows: each sequence's first and
// last query head. `tokens`: of each sequence, without padding.
verify::Errors check_padded(const measure::Cell& cell, workload::TokenFeed& feed, int64_t token,
                            std::span<const int64_t> tokens);

}  // namespace kv::experiments
