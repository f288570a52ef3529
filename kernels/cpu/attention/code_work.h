// Scales, queries and weights in the form in which loops over rows of integer codes multiply them. Plain
// data, the same for every instruction set; codes-inl.h says which loop fills in and reads which. Private to
// kernels/cpu.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/attention.h"
#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/attention/prefetcher.h"
#include "kernels/cpu/attention/tile.h"
#include "kernels/format/ggml_format.h"

namespace kv::cpu {

// Whole groups of four blocks: a group is written whole, also where a row ends inside it.
inline constexpr int kMaxBlocks = (kMaxHeadDim / kGgmlBlock + 3) / 4 * 4;

// ---- scales of a run's rows: zeros behind the last ----

// One a row.
struct RowScales {
  alignas(64) float scale[kTileRows];
  alignas(64) float zero[kTileRows];  // the middle of the row's grid; only of affine rows
};

// One a block, by columns: [blocks, rows]. Zeros behind a run's last row, to the end.
struct ScaleColumns {
  alignas(64) float scale[kMaxBlocks * kTileRows];
  const float* at(int block, int row) const { return scale + block * kTileRows + row; }
};

// Scales of a run's blocks without their minima (minima-inl.h).
struct SplitScales {
  TileSide side;
  alignas(64) uint16_t scale[kTileRows * kMaxBlocks];      // [rows, blocks] f16
  alignas(64) uint16_t column[2][kMaxBlocks * kTileRows];  // scales and minima, [blocks, kTileRows] f16
  alignas(64) float middle[kMaxBlocks * kTileRows];        // [blocks, kTileRows]
};

// ---- queries as 16-bit codes ----

// A task's, in memory that tasks share.
struct CodedQueries {
  // From query to query, in q and in start: fixed, so that a loop over words moves one pointer for all.
  static constexpr int kStride = kMaxHeadDim, kStartStride = kMaxHeadDim / 4;
  int16_t* q;          // [queries], in the order that score_block_rows() or sum_products() reads
  int32_t* start;      // [queries, blocks]: of formats with blocks, -middle times the sum of q
  float* step;         // [queries] of interleaved codes: an element is about step * q
  int32_t* start_sum;  // [queries] of interleaved codes, -middle times the sum of all q
  float* block_step;   // [queries, blocks] of formats with blocks: the same
  float* offset;       // [queries] what zero points add to each score; of row scales: the sum of the query
  std::optional<Encoding> coded_for;  // rows of which they are to meet
};

// Not initialised.
struct CodedQueriesScratch {
  alignas(64) int16_t q[kQueryBlock * CodedQueries::kStride];
  alignas(64) int32_t start[kQueryBlock * CodedQueries::kStartStride];
  alignas(64) float block_step[kQueryBlock * CodedQueries::kStartStride];
  float step[kQueryBlock];
  int32_t start_sum[kQueryBlock];
  float offset[kQueryBlock];

  CodedQueries from(int64_t query) {
    return {.q = q + query * CodedQueries::kStride,
            .start = start + query * CodedQueries::kStartStride,
            .step = step + query,
            .start_sum = start_sum + query,
            .block_step = block_step + query * CodedQueries::kStartStride,
            .offset = offset + query,
            .coded_for = {}};
  }
};

// ---- attention weights of up to 4 queries as 16-bit codes, two rows' in one 32-bit lane ----

inline constexpr float kLargestWeightCode = 32767.0f;

// Rows with a scale each: the pairs are neighbours, rows 2i and 2i + 1.
struct RowWeights {
  static constexpr int kStride = kTileRows / 2;  // from a query's to the next one's
  alignas(64) int32_t pair[4 * kStride];         // [queries, pairs]
  float step[4];                                 // a weight is about step * code
  float zero[4];                                 // added to each element
};

// Rows with a scale a block, so a weight for each block, under a step a block: 16-bit codes of two rows in one 32-bit lane, 16
// rows apart; or 8-bit codes of four (kInt8).
template <int kRows>
struct BlockWeights {
  static constexpr int kWords = kTileRows / kRows, kApart = 16;
  static constexpr int kStride = kWords * kMaxBlocks;  // from a query's to the next one's
  // The first row of word i.
  static constexpr int row(int i) { return i % kApart + i / kApart * kApart * kRows; }
  alignas(64) int32_t
      word[4 * kStride + 16];  // [queries, groups of four blocks, words, blocks]; vectors may look further
  alignas(64) int32_t start[4 * kMaxBlocks + 16];  // [queries, blocks]: what unsigned codes have too much
  alignas(64) float step[4 * kMaxBlocks];          // [queries, blocks]: a weight is about step * code
};

// Not initialised: only what is written is read.
struct CodeScratch {
  RowScales rows;
  ScaleColumns columns;
  alignas(64) float scaled_queries[4 * kMaxHeadDim];
  RowWeights row_weights;
  BlockWeights<2> block_weights;
  BlockWeights<4> int8_weights;
  SplitScales split;
};

// The inputs and scratch memory of scores and values over a run of rows.
struct CodeWork {
  const AttentionTask& task;
  int head_dim;
  CodeScratch& scratch;
  CodedQueries& queries;
  Prefetcher& prefetcher;
};

}  // namespace kv::cpu
