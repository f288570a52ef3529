// Growth without a cache. A step at T tokens gets K and V of all T again, as a model without a cache recomputes them,
// and attends with all T queries, since every layer's output feeds the next layer's rows. Nothing is kept between
// steps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "harness/measure/cell.h"

namespace kv::experiments {

class UncachedRows {
 public:
  // Reads the point's tokens of all sequences and layers, and gives `cell` the ledger that counts their rows. Throws
  // std::bad_alloc.
  UncachedRows(measure::Cell& cell, const measure::SweepPoint& point);
  // Bytes of the largest step's inputs and rows.
  static int64_t bytes(const measure::SweepPoint& point);

  // append: new rows; attend: all queries of all tokens. Inputs are laid out outside the timed part.
  measure::StepTimes step(int64_t tokens, bool attend);
  // Bytes held for the last layer of the last step while it ran; none remain between steps.
  int64_t step_bytes() const { return step_bytes_; }
  // Errors of the newest token's outputs, after a step of all tokens.
  verify::Errors errors();

 private:
  struct Rows {  // all heads
    std::vector<float> q, k, v;
  };
  // The first `tokens` of prompts_[at]; valid until the next call.
  StepInput input(size_t at, int64_t tokens, SequenceId id);

  measure::Cell& cell_;
  const int64_t tokens_;
  const int sequences_;
  std::unique_ptr<Cache> cache_;  // empty between steps
  std::vector<Rows> prompts_;     // [layers, sequences]
  Rows step_;                     // one prompt's, [heads, tokens, head_dim]
  std::vector<float> out_;        // [heads, tokens, head_dim]
  int64_t step_bytes_ = 0;
};

}  // namespace kv::experiments
