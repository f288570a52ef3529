// A model without a cache: every step runs the whole text again, so a text of T tokens costs O(T^2) products
// where a cache costs O(T). It is what the "speed-up by a cache" of tables is a multiple of.
//
// All that is kept of the past are the token ids. K and V of one layer are there while that layer attends, with
// the kernels that caches use, and are gone before the next layer's are made.
#pragma once

#include <map>
#include <memory>

#include "harness/model/decoder.h"
#include "harness/model/linear_rows.h"
#include "harness/model/model.h"
#include "harness/model/step_rows.h"
#include "variants/cache/cache.h"

namespace kv::model {

class UncachedModel : public Decoder {
 public:
  // Ids (as metadata) and a layer's K and V (as payload, f32) come from `memory`, which outlives this object, as
  // does `model`. Throws std::bad_alloc where the ids do not fit.
  UncachedModel(const Model& model, Memory& memory, int sequences, int64_t max_tokens,
                Rotary rotary = Rotary::kTrained);

  // Throws what Model::forward and Cache::step throw; then no token has been taken. std::logic_error past
  // max_tokens.
  std::vector<float> step(std::span<const int> ids, int64_t n) override { return step(ids, n, n); }
  std::vector<float> prompt(std::span<const int> ids, int64_t n) override { return step(ids, n, 1); }
  void fork(int samples) override;
  int sequence_count() const override { return sequences_; }
  int64_t tokens() const override { return tokens_; }
  // Held between steps: the ids.
  static int64_t held_bytes(int sequences, int64_t max_tokens) {
    return sequences * max_tokens * static_cast<int64_t>(sizeof(int));
  }

 private:
  // With the logits of the last `wanted` tokens of each sequence.
  std::vector<float> step(std::span<const int> ids, int64_t n, int64_t wanted);
  void attend(int layer, int64_t n, const float* q, const float* k, const float* v, float* out);
  void recur(int layer, int64_t n, const float* projected, float* out);
  // Each sequence's step in an empty cache, which is empty again behind it.
  void step_alone(Cache& cache, std::span<StepInput> inputs) const;
  int* text(int sequence) const;  // [max_tokens]

  const Model& model_;
  Memory& memory_;
  int sequences_;
  const int64_t max_tokens_;
  const Rotary rotary_;
  Block ids_;  // [sequences, max_tokens]
  // By the layers' windows: room for one layer's rows, empty between layers.
  std::map<int64_t, std::unique_ptr<Cache>> rows_;
  int64_t tokens_ = 0;
  std::unique_ptr<Cache> state_;  // likewise, of a linear layer; null where there is none
  StepRows layer_rows_;
  LinearRows linear_rows_;
};

}  // namespace kv::model
