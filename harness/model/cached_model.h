// A model that decodes with a cache under test: several sequences of equal length, in lockstep.
//
// Every token is appended and attended by Cache::step, layer by layer, as in decode, and what the cache does
// to one layer's output reaches the next. The sequences share the model's matrix products, but not a row of
// the cache. So can several models with caches of their own.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "harness/model/decoder.h"
#include "harness/model/linear_rows.h"
#include "harness/model/model.h"
#include "harness/model/step_rows.h"
#include "variants/cache/cache.h"
#include "variants/model_cache/layer_groups.h"

namespace kv::model {

// The cache that a model with this configuration needs.
ModelShape cache_shape(const ModelConfig& config, int sequences, int64_t max_tokens);

// Throws std::invalid_argument where the spec has positions=cache, and the model no RoPE, or several.
void check_rotation(const ModelConfig& config, const LayerSpecs& specs);

// Caches leave it to their retention what a query sees. Throws std::invalid_argument where a layer has a sliding window and
// the cache would show it more.
void check_window(const ModelConfig& config, const Cache& cache);

class CachedModel : public Decoder {
 public:
  // `cache` has the model's shape and no sequences yet; both outlive this object. A cache that rotates
  // rows by cache position gets them before RoPE, whatever `rotary` says. Throws std::bad_alloc, and what check_window,
  // check_rotation and check_codebooks (codebooks.h) throw.
  CachedModel(const Model& model, Cache& cache, int sequences, Rotary rotary = Rotary::kTrained);

  // Gives every sequence its next n tokens, ids [sequences, n], as one step. Returns the logits
  // [sequences, n, vocab_size]. Throws what Model::forward and Cache::step throw.
  std::vector<float> step(std::span<const int> ids, int64_t n) override { return step(ids, n, {}); }
  // The same as a part of a prompt: logits of the last token of each sequence, [sequences, vocab_size].
  std::vector<float> prompt(std::span<const int> ids, int64_t n) override;
  // The result of a step of several models. Those whose caches answered with the same bits are a group; failed ones are in none.
  struct Together {
    std::vector<float> logits;   // [groups, wanted, vocab_size]
    std::vector<int64_t> group;  // [models]; -1: none
  };
  // Gives the sequences of each of these models the same next n tokens, ids [sequences, n], as one step. The models have
  // the same weights, number of sequences and tokens so far. The rows of all lie side by side in each product, and models
  // share them as long as their caches answer with the same bits; caches and attention are each model's own. `wanted`:
  // indices into `ids`, ascending.
  //
  // `first_answers`: the first model's answers serve all, and the other caches are given rows alone, as far as their
  // retention can do without answering.
  //
  // A model whose cache throws keeps the exception as its failure() and stops alone. If all have failed, throws the first
  // one's. Also throws what Model::forward throws, and what `after_layer` throws, which is called after every layer's
  // caches have answered; the models are then of no further use.
  static Together step_together(
      std::span<CachedModel* const> models, std::span<const int> ids, int64_t n, Model::Wanted wanted = {},
      bool first_answers = false, const std::function<void()>& after_layer = [] {});
  std::exception_ptr failure() const { return failure_; }
  // The cache has been given `tokens` tokens of each sequence by someone else.
  void follow(int64_t tokens) { tokens_ += tokens; }

  std::span<const SequenceId> sequences() const { return ids_; }
  // The cache has room for as many sequences, or std::logic_error. Throws std::bad_alloc.
  void fork(int samples) override;
  int sequence_count() const override { return static_cast<int>(ids_.size()); }
  int vocab_size() const { return model_.config().vocab_size; }
  int layers() const { return model_.config().layers; }
  int64_t tokens() const override { return tokens_; }  // a sequence, so far

  // Time of all steps: in this model's cache, and its even share of the rest, which the models of a step do as one.
  double cache_seconds() const { return cache_seconds_; }
  double shared_seconds() const { return shared_seconds_; }

 private:
  struct Company;

  std::vector<float> step(std::span<const int> ids, int64_t n, Model::Wanted wanted);
  // Calls work(model, its index) for each that has not failed. Returns the seconds until all have done it.
  static double each_alone(std::span<CachedModel* const> models,
                           const std::function<void(CachedModel& model, int64_t at)>& work);
  // q, k and v have `rows` rows a head, of which the first are this model's; out [q_heads, its rows, head_dim], or null.
  void attend(int layer, int64_t n, int64_t rows, const float* q, const float* k, const float* v, float* out);
  void recur(int layer, int64_t n, const float* projected, float* out);
  // Cache::step, its parts timed.
  void step_cache(int layer, std::span<const StepInput> inputs);

  const Model& model_;
  Cache& cache_;
  Rotary rotary_;
  std::vector<SequenceId> ids_;
  int64_t tokens_ = 0;
  std::exception_ptr failure_;
  double cache_seconds_ = 0, shared_seconds_ = 0;
  StepRows rows_;
  LinearRows linear_rows_;
  std::vector<std::vector<ConvolutionWindow>> windows_;  // [layers][sequences]
};

}  // namespace kv::model
