// What each kernel of attention/ is launched with. Plain data, so that the host can fill it in without a CUDA
// compiler; all pointers are the device's.
#pragma once

#include "kernels/cuda/attention/problem.h"

namespace kv::cuda {

// All rows of one (sequence, layer, kv head) as f32: those of the pages, and then the raw ones.
struct CopyJob {
  const Page* pages;
  const Page* tail;
  int32_t rows, tail_rows;
  float* k;  // [rows + tail_rows, head_dim] out
  float* v;
  const int32_t* place;  // [rows + tail_rows] or null: keys are RoPE-rotated to these cache positions
};

struct CopyParams {
  Layout layout, tail;
  const CopyJob* jobs;  // [blocks_y]
  const float* angles;  // [places, 2, head_dim / 2] cosines and sines, or null
  bool
      halves;  // half-split RoPE: channels i and i + head_dim / 2 are a pair; else interleaved: 2i and 2i + 1
};

struct AttendParams {
  Layout layout, tail;      // of the pages and of the raw rows behind them
  const Problem* problems;  // [blocks_y]
  Partials partials;
  int32_t group;
  int32_t split_rows;
  int32_t first_split = 0;  // that of block_z 0
};

// A block's work: rows [begin, end) of a problem's pages, or of its raw tail.
struct WorkItem {
  int32_t problem;
  int32_t split;  // which of the problem's partial results this is
  int32_t begin, end;
};

struct MergeParams {
  const Problem* problems;  // [blocks_y]
  Partials partials;
  int32_t group;
  int32_t head_dim;
  // [problems, most_queries] or null: log2 of the sum of exp2(score), by which a score becomes a probability.
  float* log_sum;
  int32_t most_queries;
};

struct DecodeParams {
  Layout layout;
  const WorkItem* items;  // [blocks_x]
  MergeParams merge;
  // [problems, blocks_y] zeros, which are zeros again afterwards: the last block of a problem's splits merges
  // them. Or null: that is left to a launch of merge_splits.
  unsigned* counters;
  bool tail;  // the items are of the problems' tails, whose rows follow those of the pages
};

struct AttentionWeightsParams {
  const Problem* problems;  // [blocks_y], with logits
  const float* log_sum;     // [problems, most_queries] of the merge
  float* const* weights;    // [problems]: [rows] each, added to; or null
  int32_t group;
  int32_t most_queries;
};

// The state of one (sequence, layer, kv head).
struct ScoredSlots {
  int32_t* token;  // [budget] the token in each slot
  float* score;    // [budget]
};

struct EvictParams {
  const ScoredSlots* heads;  // [blocks_x]
  int32_t* slot;             // [heads] out: the coming token's
  int32_t budget, recent;
  int32_t count;              // tokens so far, which is the number of the coming one
  bool newest_query = false;  // scores are what the newest query alone gave: they start from 0 after a choice
};

// Blocks an SM that are worth trying, since nobody knows beforehand which reads fastest. It holds five at a time.
inline constexpr int kReadBlocks[] = {2, 4, 5, 20};

struct ReadParams {
  const std::byte* from;  // aligned to 16
  int64_t words;          // of 16 bytes
  uint32_t* sum;          // out, of one block in 2^32 at most
};

}  // namespace kv::cuda
