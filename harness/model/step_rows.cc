#include "harness/model/step_rows.h"

#include <algorithm>

namespace kv::model {

namespace {

// A model's rows [heads, rows, dim] are a cache's [sequences, heads, n, dim], with n * dim values a `part`. Calls
// copy(model's offset, cache's offset) for each part.
void each_part(int64_t heads, int64_t stride, int64_t sequences, int64_t part, const auto& copy) {
  for (int64_t s = 0; s < sequences; ++s) {
    for (int64_t h = 0; h < heads; ++h) copy(h * stride + s * part, (s * heads + h) * part);
  }
}

}  // namespace

std::span<StepInput> StepRows::lay_out(const ModelConfig& config, int layer, std::span<const SequenceId> ids,
                                       int64_t n, int64_t rows, const float* q, const float* k,
                                       const float* v) {
  const int64_t sequences = std::ssize(ids), part = n * config.head_dim(), q_size = config.q_heads * part,
                kv_size = config.kv_heads * part, stride = rows * config.head_dim();
  q_.resize(static_cast<size_t>(sequences * q_size));
  out_.resize(q_.size());
  k_.resize(static_cast<size_t>(sequences * kv_size));
  v_.resize(k_.size());
  each_part(config.q_heads, stride, sequences, part,
            [&](int64_t from, int64_t to) { std::copy_n(q + from, part, q_.data() + to); });
  each_part(config.kv_heads, stride, sequences, part, [&](int64_t from, int64_t to) {
    std::copy_n(k + from, part, k_.data() + to);
    std::copy_n(v + from, part, v_.data() + to);
  });
  inputs_.clear();
  for (int64_t i = 0; i < sequences; ++i) {
    inputs_.push_back({.sequence = ids[static_cast<size_t>(i)],
                       .n = n,
                       .q = q_.data() + i * q_size,
                       .k = k_.data() + i * kv_size,
                       .v = v_.data() + i * kv_size,
                       .out = out_.data() + i * q_size,
                       .sink_logits = config.sinks(layer),
                       .score_cap = config.score_cap});
  }
  return inputs_;
}

void StepRows::copy_out(const ModelConfig& config, int64_t rows, float* out) const {
  const int64_t part = inputs_.front().n * config.head_dim();
  each_part(config.q_heads, rows * config.head_dim(), std::ssize(inputs_), part,
            [&](int64_t to, int64_t from) { std::copy_n(out_.data() + from, part, out + to); });
}

}  // namespace kv::model
