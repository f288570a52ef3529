#include "harness/model/step_rows.h"

#include <algorithm>

namespace kv::model {

void swap_axes(const float* from, int64_t outer, int64_t inner, int64_t row, float* to) {
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i)
      std::copy_n(from + (o * inner + i) * row, row, to + (i * outer + o) * row);
  }
}

std::span<StepInput> StepRows::lay_out(const ModelConfig& config, int layer, std::span<const SequenceId> ids,
                                       int64_t n, const float* q, const float* k, const float* v) {
  const int64_t sequences = std::ssize(ids), row = n * config.head_dim(), q_size = config.q_heads * row,
                kv_size = config.kv_heads * row;
  q_.resize(static_cast<size_t>(sequences * q_size));
  out_.resize(q_.size());
  k_.resize(static_cast<size_t>(sequences * kv_size));
  v_.resize(k_.size());
  swap_axes(q, config.q_heads, sequences, row, q_.data());
  swap_axes(k, config.kv_heads, sequences, row, k_.data());
  swap_axes(v, config.kv_heads, sequences, row, v_.data());
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

void StepRows::copy_out(const ModelConfig& config, float* out) const {
  const int64_t sequences = std::ssize(inputs_), row = inputs_.front().n * config.head_dim();
  swap_axes(out_.data(), sequences, config.q_heads, row, out);
}

}  // namespace kv::model
