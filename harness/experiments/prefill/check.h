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

// Compares outputs of a prompt with FP64 over the rows that they attended to: the first, the middle and the last token
// of every chunk of the first sequence, and the last token of all sequences with all the causes of its error.
class PromptCheck {
 public:
  // `prompts` [sequences, layers]. `stored`: they attend to the rows as stored in the cell's cache, else to their own;
  // those have no causes to tell. `causal`: a token sees those before it, else all of the prompt.
  PromptCheck(const measure::Cell& cell, std::span<const Prompt> prompts, bool stored, bool causal = true)
      : cell_(cell), prompts_(prompts), stored_(stored), causal_(causal) {}

  // Once all layers of the first sequence have taken this chunk, and none the next: a codec may encode rows later that
  // these queries saw raw.
  void add(size_t chunk);
  // Once all have taken all.
  verify::Errors finish() const;

 private:
  const CacheShape& shape() const { return cell_.cache->shape(); }
  verify::Errors check_last() const;
  void read_rows(int layer, int kv_head, int64_t rows, std::vector<float>& k, std::vector<float>& v) const;

  const measure::Cell& cell_;
  std::span<const Prompt> prompts_;
  bool stored_, causal_;
  double worst_ = 0.0;
};

}  // namespace kv::experiments
