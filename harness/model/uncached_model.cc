#include "harness/model/uncached_model.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "harness/model/cached_model.h"
#include "variants/cache/build.h"
#include "variants/cache/spec.h"

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
      ids_(memory, static_cast<size_t>(sequences * max_tokens) * sizeof(int), ByteKind::kMetadata) {
  if (rotary == Rotary::kCache) throw std::logic_error("no cache: nobody would rotate the keys");
  for (int layer = 0; layer < model.config().layers; ++layer) {
    std::unique_ptr<Cache>& rows = rows_[model.config().window(layer)];
    if (!rows) rows = one_layer(model.config(), model.config().window(layer), memory, max_tokens);
  }
}

int* UncachedModel::text(int sequence) const {
  return reinterpret_cast<int*>(ids_.data()) + sequence * max_tokens_;
}

std::vector<float> UncachedModel::step(std::span<const int> ids, int64_t n) {
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
    for (int64_t t = tokens_; t < all; ++t) newest.push_back(s * all + t);
  }
  std::vector<float> logits = model_.forward(
      again, positions,
      [&](int layer, int64_t, const float* q, const float* k, const float* v, float* out) {
        attend(layer, all, q, k, v, out);
      },
      rotary_, newest);
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
  const CacheShape& s = rows.shape();
  const int64_t row = n * s.head_dim, q_size = s.q_heads * row, kv_size = s.kv_heads * row;
  q_.resize(static_cast<size_t>(sequences_ * q_size));
  out_.resize(q_.size());
  k_.resize(static_cast<size_t>(sequences_ * kv_size));
  v_.resize(k_.size());
  swap_axes(q, s.q_heads, sequences_, row, q_.data());
  swap_axes(k, s.kv_heads, sequences_, row, k_.data());
  swap_axes(v, s.kv_heads, sequences_, row, v_.data());
  for (int i = 0; i < sequences_; ++i) {
    const SequenceId id = rows.add_sequence();
    const StepInput in{.sequence = id,
                       .n = n,
                       .q = q_.data() + i * q_size,
                       .k = k_.data() + i * kv_size,
                       .v = v_.data() + i * kv_size,
                       .out = out_.data() + i * q_size,
                       .sink_logits = model_.config().sinks(layer),
                       .score_cap = model_.config().score_cap};
    try {
      rows.step(0, {&in, 1});
    } catch (...) {
      rows.release(id);
      throw;
    }
    rows.release(id);
  }
  swap_axes(out_.data(), sequences_, s.q_heads, row, out);
}

}  // namespace kv::model
