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

// Whole groups of BlockScales: a group is written whole, also where a row ends inside it.
inline constexpr int kMaxBlocks = (kMaxHeadDim / kGgmlBlock + 3) / 4 * 4;

// ---- scales of a run's rows: zeros behind the last ----

// One a row.
struct RowScales {
  alignas(64) float scale[kTileRows];
  alignas(64) float zero[kTileRows];  // the middle of the row's grid; only of affine rows
};

// One a block, as [groups, rows, blocks of a group]: a group is four blocks, or two where a row has no more.
//
//   group 0                          group 1
//   row 0: b0 b1 b2 b3               row 0: b4 b5 b6 b7
//   row 1: b0 b1 b2 b3               row 1: b4 b5 b6 b7
//   …                                …
struct BlockScales {
  int group_blocks;
  alignas(64) float scale[kMaxBlocks * kTileRows + 16];  // vectors may look past the last
  // The group's scales from a row's block on.
  const float* at(int row, int block) const {
    return scale + (block & -group_blocks) * kTileRows + row * group_blocks + (block & (group_blocks - 1));
  }
  float* group(int g) { return scale + g * kTileRows * group_blocks; }
  const float* group(int g) const { return scale + g * kTileRows * group_blocks; }
};

// The same by columns, [blocks, rows]: of kInt8. Zeros behind a run's last row, to the end.
struct ScaleColumns {
  alignas(64) float scale[kMaxBlocks * kTileRows];
  const float* at(int block, int row) const { return scale + block * kTileRows + row; }
};

// ---- queries as 16-bit codes ----

// A task's, in memory that tasks share.
struct CodedQueries {
  // From query to query, in q and in start: fixed, so that a loop over words moves one pointer for all.
  static constexpr int kStride = kMaxHeadDim, kStartStride = kMaxHeadDim / 4;
  int16_t* q;          // [queries], in the order that score_block_rows() or sum_products() reads
  int32_t* start;      // [queries, words]: of formats with blocks, -middle times the sum of four lanes' q
  float* step;         // [queries] an element is about step * q
  int32_t* start_sum;  // [queries] of interleaved codes, -middle times the sum of all q
  float* block_step;   // [queries, blocks] of kInt8
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

// Rows with a scale a block, so a weight for each block. The two rows of a pair are 4 or 8 rows apart: as far
// as 16 numbers of a group of BlockScales reach.
struct BlockWeights {
  static constexpr int kPairs = kTileRows / 2;
  static constexpr int kStride = kPairs * kMaxBlocks;  // from a query's to the next one's
  alignas(64) int32_t pair[4 * kStride];               // [queries, groups, pairs, blocks of a group]
  alignas(64) int32_t start[4 * kMaxBlocks];           // [queries, blocks]: -middle * their sum
  float step[4];                                       // a weight is about step * code
  int group_blocks;
};

// The same as 8-bit codes (kInt8), of rows i, i + 16, i + 32 and i + 48 in one 32-bit lane, with a step a block.
struct Int8Weights {
  static constexpr int kQuads = kTileRows / 4;
  static constexpr int kStride = kQuads * kMaxBlocks;  // from a query's to the next one's
  alignas(64) int32_t quad[4 * kStride];      // [queries, groups of four blocks, quads, blocks of a group]
  alignas(64) int32_t start[4 * kMaxBlocks];  // [queries, blocks]: what unsigned codes have too much
  alignas(64) float step[4 * kMaxBlocks];     // [queries, blocks]: a weight is about step * code
};

// Not initialised: only what is written is read.
struct CodeScratch {
  RowScales rows;
  BlockScales blocks;
  ScaleColumns columns;
  alignas(64) float scaled_queries[4 * kMaxHeadDim];
  RowWeights row_weights;
  BlockWeights block_weights;
  Int8Weights int8_weights;
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
