// A model that decodes with a cache under test: several sequences of equal length, in lockstep.
//
// Every token is appended and attended by Cache::step, layer by layer, as in decode, and what the cache does
// to one layer's output reaches the next. The sequences share the model's matrix products, but not a row of
// the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "harness/model/model.h"
#include "variants/cache/cache.h"

namespace kv::model {

// The cache that a model with this configuration needs.
CacheShape cache_shape(const ModelConfig& config, int sequences, int64_t max_tokens);

class CachedModel {
 public:
  // `cache` has the model's shape and no sequences yet; both outlive this object. A cache that rotates
  // rows by cache position gets them before RoPE, whatever `rotary` says. Throws std::bad_alloc, and
  // std::invalid_argument if the model has a sliding window and the cache would show it more.
  CachedModel(const Model& model, Cache& cache, int sequences, Rotary rotary = Rotary::kTrained);

  // Gives every sequence its next n tokens, ids [sequences, n], as one step. Returns the logits
  // [sequences, n, vocab_size]. Throws what Model::forward and Cache::step throw.
  std::vector<float> step(std::span<const int> ids, int64_t n) { return step(ids, n, 1); }
  // The same as a part of a prompt: logits of the last token of each sequence, [sequences, vocab_size].
  std::vector<float> prompt(std::span<const int> ids, int64_t n) { return step(ids, n, n); }
  // The cache has been given `tokens` tokens of each sequence by someone else.
  void follow(int64_t tokens) { tokens_ += tokens; }

  // Called after each layer's step, with what the cache was given and what it answered.
  using Observer = std::function<void(int layer, std::span<const StepInput> inputs)>;
  void observe(Observer observer) { observer_ = std::move(observer); }

  std::span<const SequenceId> sequences() const { return ids_; }
  int64_t tokens() const { return tokens_; }  // a sequence, so far

 private:
  std::vector<float> step(std::span<const int> ids, int64_t n, int64_t logits_of);
  void attend(int layer, int64_t n, const float* q, const float* k, const float* v, float* out);
  // Cache::step, its parts timed.
  void step_cache(int layer, std::span<const StepInput> inputs);

  const Model& model_;
  Cache& cache_;
  Rotary rotary_;
  std::vector<SequenceId> ids_;
  int64_t tokens_ = 0;
  Observer observer_;
  std::vector<float> q_, k_, v_, out_;  // [sequences, heads, n, head_dim]
};

}  // namespace kv::model
