// Decodes several sequences of equal length in lockstep: a model with a cache (cached_model.h), or without any
// (uncached_model.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "variants/cache/cache.h"

namespace kv::model {

class Decoder {
 public:
  virtual ~Decoder() = default;

  // Gives every sequence its next n tokens, ids [sequences, n], as one step. Returns their logits
  // [sequences, n, vocab_size].
  virtual std::vector<float> step(std::span<const int> ids, int64_t n) = 0;
  // The same as a part of a prompt: logits of the last token of each sequence, [sequences, vocab_size].
  virtual std::vector<float> prompt(std::span<const int> ids, int64_t n) = 0;
  // Every sequence becomes `samples` that go on apart, next to one another; what they have read is not read again.
  virtual void fork(int samples) = 0;
  virtual int sequence_count() const = 0;
  virtual int64_t tokens() const = 0;  // a sequence, so far

  // Called after each layer's step, with what its cache was given for every sequence and what it answered; without a
  // cache these are all tokens so far.
  using Observer = std::function<void(int layer, std::span<const StepInput> inputs)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

 protected:
  void tell(int layer, std::span<const StepInput> inputs) const {
    if (observer_) observer_(layer, inputs);
  }

 private:
  Observer observer_;
};

}  // namespace kv::model
