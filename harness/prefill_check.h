// What the prefill experiment feeds a cache, and how it holds the outputs against FP64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/live_cell.h"
#include "harness/verify.h"
#include "harness/workload.h"

namespace kv {

// A prompt as the steps of an arm are given it: of one sequence's layer.
struct Prompt {
  struct Chunk {
    int64_t first, n;
    std::vector<float> q, k, v, out;  // [heads, n, head_dim]
  };
  std::vector<Chunk> chunks;
  std::vector<float> k, v;  // [kv_heads, tokens, head_dim]

  // Its first `tokens` tokens, `chunk` at a time.
  Prompt(const Workload& workload, int sequence, int layer, int64_t tokens, int64_t chunk);
};

// Holds the outputs of some tokens against FP64. `prompts` [sequences, layers], which the cell's cache has
// been given. `stored`: they attended to the rows as stored; then the last token is held with all the causes
// of its error. Others are wherever the rows that they saw are still there.
Errors check_prompts(const LiveCell& cell, std::span<const Prompt> prompts, bool stored);

}  // namespace kv
