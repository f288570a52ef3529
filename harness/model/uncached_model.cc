#include "harness/model/uncached_model.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "harness/model/cached_model.h"
#include "harness/model/step_parts.h"
#include "variants/cache/spec.h"
#include "variants/model_cache/resolve.h"

namespace kv::model {
namespace {

// `concat` holds no more rows than it is given, and a layer's come all at once, so nothing is copied.
std::unique_ptr<Cache> one_layer(const ModelConfig& config, int64_t window, Memory& memory,
                                 int64_t max_tokens) {
  const bool cuts = window > 0 && window < max_tokens;
  CacheShape shape = cache_shape(config, 1, max_tokens);
  shape.layers = 1;
  return build_cache(
      parse_spec(cuts ? "concat/ring(window=" + std::to_string(window) + ",sinks=0)" : "concat"), shape,
      memory);
}

}  // namespace

UncachedModel::UncachedModel(const Model& model, Memory& memory, int sequences, int64_t max_tokens,
                             Rotary rotary)
    : model_(model),
      memory_(memory),
      sequences_(sequences),
      max_tokens_(max_tokens),
      rotary_(rotary),
      ids_(memory, static_cast<size_t>(held_bytes(sequences, max_tokens)), ByteKind::kMetadata) {
  if (rotary == Rotary::kCache) throw std::logic_error("no cache: nobody would rotate the keys");
  for (int layer = 0; layer < model.config().layers; ++layer) {
    if (is_linear(model.config().kinds[static_cast<size_t>(layer)])) {
      CacheShape one = cache_shape(model.config(), 1, max_tokens);
      one.layers = 1;
      if (!state_) state_ = build_linear_cache(model.config().linear, one, memory);
      continue;
    }
    std::unique_ptr<Cache>& rows = rows_[model.config().window(layer)];
    if (!rows) rows = one_layer(model.config(), model.config().window(layer), memory, max_tokens);
  }
}

int* UncachedModel::text(int sequence) const {
  return reinterpret_cast<int*>(ids_.data()) + sequence * max_tokens_;
}

std::vector<float> UncachedModel::step(std::span<const int> ids, int64_t n, int64_t wanted) {
  const int64_t all = tokens_ + n;
  if (all > max_tokens_ || std::ssize(ids) != sequences_ * n) {
    throw std::logic_error("step of " + std::to_string(ids.size()) + " ids for " +
                           std::to_string(sequences_) + " sequences at " + std::to_string(tokens_) + " of " +
                           std::to_string(max_tokens_) + " tokens");
  }
  std::vector<int> again;
  std::vector<int64_t> positions, newest;
  for (int s = 0; s < sequences_; ++s) {
    std::copy_n(ids.begin() + s * n, n, text(s) + tokens_);
    again.insert(again.end(), text(s), text(s) + all);
    for (int64_t t = 0; t < all; ++t) positions.push_back(t);
    for (int64_t t = all - wanted; t < all; ++t) newest.push_back(s * all + t);
  }
  std::vector<float> logits = model_.forward(
      again, positions,
      [&](int layer, int64_t, const float* q, const float* k, const float* v, float* out) {
        attend(layer, all, q, k, v, out);
      },
      {&rotary_, 1}, newest,
      [&](int layer, int64_t, const float* projected, float* out) { recur(layer, all, projected, out); });
  tokens_ = all;
  return logits;
}

void UncachedModel::fork(int samples) {
  Block all(memory_, ids_.size() * static_cast<size_t>(samples), ByteKind::kMetadata);
  auto* to = reinterpret_cast<int*>(all.data());
  for (int s = 0; s < sequences_ * samples; ++s, to += max_tokens_)
    std::copy_n(text(s / samples), tokens_, to);
  ids_ = std::move(all);
  sequences_ *= samples;
}

// One layer's attention of all tokens so far.
void UncachedModel::attend(int layer, int64_t n, const float* q, const float* k, const float* v, float* out) {
  Cache& rows = *rows_.at(model_.config().window(layer));
  const std::vector<SequenceId> ids(static_cast<size_t>(sequences_));
  const std::span<StepInput> inputs =
      layer_rows_.lay_out(model_.config(), layer, step_of(ids, n), sequences_ * n, q, k, v);
  {
    const StepParts::Timing timing(Part::kAttend);
    step_alone(rows, inputs);
  }
  tell(layer, inputs);
  layer_rows_.copy_out(model_.config(), sequences_ * n, out);
}

void UncachedModel::recur(int layer, int64_t n, const float* projected, float* out) {
  const LayerWeights& weights = model_.weights().layers[static_cast<size_t>(layer)];
  const ModelConfig& config = model_.config();
  const std::vector<SequenceId> ids(static_cast<size_t>(sequences_));
  std::vector<ConvolutionWindow> windows(ids.size());
  const std::span<StepInput> inputs =
      linear_rows_.lay_out(config.linear, weights, ids, n, projected, windows);
  {
    const StepParts::Timing timing(Part::kState);
    step_alone(*state_, inputs);
  }
  tell(layer, inputs);
  linear_rows_.copy_out(config.linear, weights, config.norm_epsilon, projected, out);
}

void UncachedModel::step_alone(Cache& cache, std::span<StepInput> inputs) const {
  for (StepInput& in : inputs) {
    in.sequence = cache.add_sequence();
    try {
      cache.step(0, {&in, 1});
    } catch (...) {
      cache.release(in.sequence);
      throw;
    }
    cache.release(in.sequence);
  }
}

}  // namespace kv::model
