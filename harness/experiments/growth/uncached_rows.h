// Growth without a cache: a step at T tokens is given K and V of all T again, as a model without a cache projects them
// anew, and attends with all T queries, since every layer's output goes into the next layer's rows. Nothing is kept
// between steps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "harness/measure/cell.h"

namespace kv::experiments {

class UncachedRows {
 public:
  // Reads the point's tokens of all sequences and layers, and lets `cell` have the ledger that their rows are counted
  // in. Throws std::bad_alloc.
  UncachedRows(measure::Cell& cell, const measure::SweepPoint& point);
  // What the inputs of the largest step take, and its rows.
  static int64_t bytes(const measure::SweepPoint& point);

  // append: rows come; attend: all queries of all tokens. Inputs are laid out outside of the times.
  measure::StepTimes step(int64_t tokens, bool attend);
  // Held for the last layer of the last step while it ran; none of it between steps.
  int64_t step_bytes() const { return step_bytes_; }
  // Of the newest token's outputs, after a step of all tokens.
  verify::Errors errors();

 private:
  struct Rows {  // of all heads
    std::vector<float> q, k, v;
  };
  // Of prompts_[at], the first `tokens`; valid until the next.
  StepInput input(size_t at, int64_t tokens, SequenceId id);

  measure::Cell& cell_;
  const int64_t tokens_;
  const int sequences_;
  std::unique_ptr<Cache> cache_;  // empty between steps
  std::vector<Rows> prompts_;     // [layers, sequences]
  Rows step_;                     // of one of them, [heads, tokens, head_dim]
  std::vector<float> out_;        // likewise
  int64_t step_bytes_ = 0;
};

}  // namespace kv::experiments
