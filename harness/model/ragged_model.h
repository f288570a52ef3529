// A model that steps sequences of any lengths together: tokens that decode and chunks of prompts lie side by side in each
// product, and each sequence attends through its own rows of the cache.
#pragma once

#include <cstdint>
#include <iterator>
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

// One sequence in a cache of its own, read on.
class TextReader {
 public:
  // `cache` is empty.
  TextReader(const Model& model, Cache& cache)
      : cache_(cache), model_(model, cache), id_(cache.add_sequence()) {}

  // Reads what is new of the text. Returns the logits after its last `wanted` tokens, [wanted, vocab_size].
  std::vector<float> read(std::span<const int> text, int64_t wanted = 1) {
    const RaggedModel::Part part{id_, tokens_, text.subspan(static_cast<size_t>(tokens_)), wanted};
    std::vector<float> logits = model_.step({&part, 1});
    tokens_ = std::ssize(text);
    return logits;
  }
  // Forgets all but the first tokens. Throws std::invalid_argument where the cache cannot.
  void keep(int64_t tokens) {
    if (tokens >= tokens_) return;
    cache_.truncate(id_, tokens);
    tokens_ = tokens;
  }
  int64_t tokens() const { return tokens_; }
  SequenceId sequence() const { return id_; }

 private:
  Cache& cache_;
  RaggedModel model_;
  const SequenceId id_;
  int64_t tokens_ = 0;
};

}  // namespace kv::model
