// The prompts of the prefill experiment, and the comparison of outputs with FP64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/measure/cell.h"
#include "harness/verify/verify.h"
#include "harness/workload/workload.h"

namespace kv::experiments {

// A prompt of one sequence's layer, cut for the steps of an arm.
struct Prompt {
  struct Chunk {
    int64_t first, n;
    std::vector<float> q, k, v, out;  // [heads, n, head_dim]
  };
  std::vector<Chunk> chunks;
  std::vector<float> k, v;  // [kv_heads, tokens, head_dim]

  // Takes the first `tokens` tokens, `chunk` at a time.
  Prompt(const workload::Workload& workload, int sequence, int layer, int64_t tokens, int64_t chunk);
};

// Compares a prompt's outputs with FP64 over the rows that they attended to: the first, middle and last token of
// every chunk of the first sequence, and the last token of all sequences, whose error is split by cause.
class PromptCheck {
 public:
  // `prompts`: [sequences, layers]. `stored`: outputs attend to the rows stored in the cell's cache; else to the
  // prompt's own, whose error has no split. `causal`: a token sees itself and earlier ones; else the whole prompt.
  PromptCheck(const measure::Cell& cell, std::span<const Prompt> prompts, bool stored, bool causal = true)
      : cell_(cell), prompts_(prompts), stored_(stored), causal_(causal) {}

  // Call when all layers of the first sequence have taken this chunk and none the next: a codec may later encode rows
  // that these queries saw raw.
  void add(size_t chunk);
  // Call when every sequence has taken the whole prompt.
  verify::Errors finish() const;

 private:
  const CacheShape& shape() const { return cell_.cache->shape(); }
  verify::Errors check_last() const;
  void read_rows(bool stored_rows, int layer, int kv_head, int64_t rows, std::vector<float>& k,
                 std::vector<float>& v) const;

  const measure::Cell& cell_;
  std::span<const Prompt> prompts_;
  bool stored_, causal_;
  double worst_ = 0.0;
};

}  // namespace kv::experiments
