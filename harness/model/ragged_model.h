// A model that steps sequences of any lengths together: tokens that decode and chunks of prompts lie side by side in each
// product, and each sequence attends through its own rows of the cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/model/model.h"
#include "harness/model/step_rows.h"
#include "variants/cache/cache.h"

namespace kv::model {

class RaggedModel {
 public:
  // `cache` has the model's shape; both outlive this object. Throws what check_window, check_rotation and
  // check_codebooks throw, and std::invalid_argument for a model with linear layers.
  RaggedModel(const Model& model, Cache& cache);

  // The next tokens of a sequence, of which the cache has the first `position`.
  struct Part {
    SequenceId sequence;
    int64_t position;
    std::span<const int> ids;
    int64_t wanted;  // logits after so many of its last tokens
  };
  // One pass over the tokens of all parts, each of another sequence, and `padding` rows more, which products multiply and
  // nobody attends to. Returns logits [wanted tokens, vocab_size]. Throws what Model::forward and Cache::step throw.
  std::vector<float> step(std::span<const Part> parts, int64_t padding = 0);

 private:
  const Model& model_;
  Cache& cache_;
  Rotary rotary_;
  StepRows rows_;
};

}  // namespace kv::model
