// What the prefill experiment feeds a cache, and how its outputs are compared with FP64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/verify/verify.h"
#include "harness/workload/workload.h"

namespace kv::experiments {

// A prompt as the steps of an arm are given it: of one sequence's layer.
struct Prompt {
  struct Chunk {
    int64_t first, n;
    std::vector<float> q, k, v, out;  // [heads, n, head_dim]
  };
  std::vector<Chunk> chunks;
  std::vector<float> k, v;  // [kv_heads, tokens, head_dim]

  // Its first `tokens` tokens, `chunk` at a time.
  Prompt(const workload::Workload& workload, int sequence, int layer, int64_t tokens, int64_t chunk);
};

// Compares the outputs of some tokens with FP64. `prompts` [sequences, layers], which the cell's cache has
// been given. `stored`: they attended to the rows as stored; then the last token is compared with all the causes
// of its error. Others are wherever the rows that they saw are still there.
verify::Errors check_prompts(const measure::Cell& cell, std::span<const Prompt> prompts, bool stored);

}  // namespace kv::experiments
