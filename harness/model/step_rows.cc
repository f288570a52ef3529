#include "harness/model/step_rows.h"

#include <algorithm>

namespace kv::model {

namespace {

// A model's rows [heads, rows, dim] are a cache's [heads, n, dim] of each input. Calls copy(model's offset, cache's offset,
// count) for each head of each input.
void each_part(std::span<const StepInput> inputs, int64_t heads, int64_t rows, int64_t dim,
               const auto& copy) {
  int64_t before = 0;  // tokens of earlier inputs
  for (const StepInput& in : inputs) {
    for (int64_t h = 0; h < heads; ++h)
      copy((h * rows + before) * dim, (heads * before + h * in.n) * dim, in.n * dim);
    before += in.n;
  }
}

}  // namespace

std::vector<SequenceTokens> step_of(std::span<const SequenceId> ids, int64_t n) {
  std::vector<SequenceTokens> step;
  for (const SequenceId id : ids) step.push_back({id, n});
  return step;
}

std::span<StepInput> StepRows::lay_out(const ModelConfig& config, int layer,
                                       std::span<const SequenceTokens> step, int64_t rows, const float* q,
                                       const float* k, const float* v) {
  const int64_t d = config.head_dim();
  int64_t tokens = 0;
  for (const SequenceTokens& one : step) tokens += one.n;
  q_.resize(static_cast<size_t>(tokens * config.q_heads * d));
  out_.resize(q_.size());
  k_.resize(static_cast<size_t>(tokens * config.kv_heads * d));
  v_.resize(k_.size());
  inputs_.clear();
  for (int64_t before = 0; const SequenceTokens& one : step) {
    const int64_t q_at = before * config.q_heads * d, kv_at = before * config.kv_heads * d;
    inputs_.push_back({.sequence = one.sequence,
                       .n = one.n,
                       .q = q_.data() + q_at,
                       .k = k_.data() + kv_at,
                       .v = v_.data() + kv_at,
                       .out = out_.data() + q_at,
                       .sink_logits = config.sinks(layer),
                       .score_cap = config.score_cap});
    before += one.n;
  }
  each_part(inputs_, config.q_heads, rows, d,
            [&](int64_t from, int64_t to, int64_t n) { std::copy_n(q + from, n, q_.data() + to); });
  each_part(inputs_, config.kv_heads, rows, d, [&](int64_t from, int64_t to, int64_t n) {
    std::copy_n(k + from, n, k_.data() + to);
    std::copy_n(v + from, n, v_.data() + to);
  });
  return inputs_;
}

void StepRows::copy_out(const ModelConfig& config, int64_t rows, float* out) const {
  each_part(inputs_, config.q_heads, rows, config.head_dim(),
            [&](int64_t to, int64_t from, int64_t n) { std::copy_n(out_.data() + from, n, out + to); });
}

}  // namespace kv::model
