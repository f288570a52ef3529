// The time that padding costs a ragged batch. Every sequence is as long as the longest, with rows of zeros in front
// (as generation pads, so that new tokens line up); attention covers all rows, and a mask gives padding no weight.
// The other arm is the same attention without padding, each sequence over its own rows.
//
// Both keep f32 rows in a contiguous cache and scores in memory, as code without ragged kernels does: they differ
// only in the padding and its mask.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/results/column.h"
#include "harness/verify/verify.h"
#include "variants/cache/cache.h"

namespace kv::experiments {

inline constexpr auto kLengths = results::TextColumn{"lengths", "", "batch: source of the lengths"}
                                     .axis("lengths {}", true)
                                     .swept_by("lengths");
inline constexpr results::NumberColumn kMaskedShare{
    "masked_share", "1",
    "batch, padded: share of the rows read that are padding, which the mask gives no weight; ratio_p50 is "
    "their cost"};
inline constexpr results::NumberColumn kWasteShare{"waste_share", "1",
                                                   "batch: slack / (payload + metadata + slack)"};
inline constexpr auto kBatchColumns = results::column_list(kLengths, kMaskedShare, kWasteShare);

// The names of both arms' cells.
inline constexpr std::string_view kUnpadded = "unpadded", kPadded = "padded";
inline bool is_padded(const measure::Cell& cell) { return cell.result[results::kVariant] == kPadded; }
inline bool is_padding_arm(const measure::Cell& cell) {
  return is_padded(cell) || cell.result[results::kVariant] == kUnpadded;
}

// Adds both arms to a sweep point's cells.
void add_padding_arms(measure::SweepPoint& point);

// Padding rows in front of each sequence; none of a cell that is not padded.
std::vector<int64_t> padding_of(const measure::SweepPoint& point, const measure::Cell& cell);

// Appends `rows` rows of zeros to every layer of the sequence.
void append_padding(Cache& cache, SequenceId sequence, int64_t rows);

// Attention for an arm's steps. The i-th input of each call belongs to the sequence with padding[i]; mask and scores
// are workspace of `memory`.
measure::Attend score_attention(Cache& cache, std::span<const int64_t> padding, Memory& memory);

// Compares the outputs of the feed's step `token` with FP64 over the workload's own rows: each sequence's first and
// last query head. `tokens`: of each sequence, without padding.
verify::Errors check_padded(const measure::Cell& cell, workload::TokenFeed& feed, int64_t token,
                            std::span<const int64_t> tokens);

// A pool of default size gets as many blocks as the batch fills: with room for the longest length everywhere it would be
// padding again. The spec with its pool, if it has one of default size, set to `times` the blocks that sequences of these lengths
// fill.
Spec with_fitting_pool(const Spec& spec, const CacheShape& shape, std::span<const int64_t> lengths,
                       int times);

}  // namespace kv::experiments
