// What a ragged batch costs in time where it is padded: every sequence as long as the longest, with rows of zeros
// in front (as generation is padded, so that new tokens line up), attention over all rows, and a mask that gives
// those of the padding no weight. Beside it the same attention without padding, each sequence over its own rows.
//
// Both keep f32 rows in a contiguous cache and have their scores in memory, as code without ragged kernels does, so
// that all that differs between them is the padding and its mask.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/verify/verify.h"

namespace kv::experiments {

// Of a batch cell; 0 is a variant with its own attention.
enum PaddingArm : size_t { kUnpadded = 1, kPadded = 2 };

// Adds the two to a sweep point's cells.
void add_padding_arms(measure::SweepPoint& point);

// Rows of padding in front of each sequence; none where the arm has none.
std::vector<int64_t> padding_of(const measure::SweepPoint& point, size_t arm);

// Appends that many rows of zeros to every layer of the sequence.
void append_padding(Cache& cache, SequenceId sequence, int64_t rows);

// What a cell's steps attend with. The i-th input of each call belongs to the sequence with padding[i]; the mask
// and the scores are workspace of `memory`.
measure::Attend score_attention(Cache& cache, std::span<const int64_t> padding, Memory& memory);

// The outputs of the feed's step `token` against FP64 over the workload's own rows: of each sequence's first and
// last query head. `tokens` of each sequence, without padding.
verify::Errors check_padded(const measure::Cell& cell, workload::TokenFeed& feed, int64_t token,
                            std::span<const int64_t> tokens);

}  // namespace kv::experiments
