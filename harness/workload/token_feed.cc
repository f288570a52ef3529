#include "harness/workload/token_feed.h"

#include <algorithm>

#include "variants/cache/spec.h"

namespace kv::workload {

TokenFeed::TokenFeed(const Workload& workload, int sequences, std::vector<int64_t> offsets)
    : workload_(workload), sequences_(sequences), offsets_(std::move(offsets)) {
  offsets_.resize(static_cast<size_t>(sequences));
  const WorkloadShape& s = workload.shape();
  out_.resize(static_cast<size_t>(int64_t{s.layers} * sequences * s.q_heads * s.head_dim));
  inputs_.resize(static_cast<size_t>(sequences));
}

size_t TokenFeed::slot(int layer, int sequence, int64_t token) const {
  return static_cast<size_t>(((token - first_) * workload_.shape().layers + layer) * sequences_ + sequence);
}

void TokenFeed::load(int64_t first, int64_t n) {
  const WorkloadShape& s = workload_.shape();
  const int64_t d = s.head_dim, q_row = s.q_heads * d, kv_row = s.kv_heads * d;
  first_ = first;
  count_ = n;
  const size_t slots = static_cast<size_t>(n * s.layers * sequences_);
  q_.resize(slots * static_cast<size_t>(q_row));
  k_.resize(slots * static_cast<size_t>(kv_row));
  v_.resize(k_.size());
  std::vector<float> q(static_cast<size_t>(q_row * n)), k(static_cast<size_t>(kv_row * n)), v(k.size());
  // [heads, n, head_dim] -> one [heads, head_dim] a token
  const auto scatter = [&](const std::vector<float>& from, int heads, std::vector<float>& to, int layer,
                           int sequence) {
    for (int64_t t = 0; t < n; ++t) {
      float* row = to.data() + slot(layer, sequence, first + t) * static_cast<size_t>(heads * d);
      for (int h = 0; h < heads; ++h) std::copy_n(from.data() + (h * n + t) * d, d, row + h * d);
    }
  };
  for (int layer = 0; layer < s.layers; ++layer) {
    for (int sequence = 0; sequence < sequences_; ++sequence) {
      workload_.read(sequence, layer, first + offsets_[static_cast<size_t>(sequence)], n, q.data(), k.data(),
                     v.data());
      scatter(q, s.q_heads, q_, layer, sequence);
      scatter(k, s.kv_heads, k_, layer, sequence);
      scatter(v, s.kv_heads, v_, layer, sequence);
    }
  }
}

std::span<const StepInput> TokenFeed::inputs(int layer, int64_t token, std::span<const SequenceId> ids) {
  const WorkloadShape& s = workload_.shape();
  const size_t q_row = static_cast<size_t>(s.q_heads * s.head_dim),
               kv_row = static_cast<size_t>(s.kv_heads * s.head_dim);
  for (int i = 0; i < sequences_; ++i) {
    const size_t at = slot(layer, i, token);
    inputs_[static_cast<size_t>(i)] = {
        .sequence = ids[static_cast<size_t>(i)],
        .n = 1,
        .q = q_.data() + at * q_row,
        .k = k_.data() + at * kv_row,
        .v = v_.data() + at * kv_row,
        .out = out_.data() + static_cast<size_t>(layer * sequences_ + i) * q_row};
  }
  return inputs_;
}

const float* TokenFeed::out(int layer, int sequence) const {
  const WorkloadShape& s = workload_.shape();
  return out_.data() + (int64_t{layer} * sequences_ + sequence) * s.q_heads * s.head_dim;
}

const float* TokenFeed::q(int layer, int sequence, int64_t token) const {
  const WorkloadShape& s = workload_.shape();
  return q_.data() + slot(layer, sequence, token) * static_cast<size_t>(s.q_heads * s.head_dim);
}

namespace {
// True if `test` holds for a layer's retention.
template <class Test>
bool any_retention(const Cache& cache, Test test) {
  for (int layer = 0; layer < cache.shape().layers; ++layer) {
    if (cache.keeps_rows(layer) && test(retention_of(cache.spec(layer)))) return true;
  }
  return false;
}
}  // namespace

void prefill(Cache& cache, const Workload& workload, std::span<const SequenceId> ids, int64_t first,
             int64_t last, int first_sequence, int64_t chunk) {
  if (any_retention(cache, [](const RetentionEntry& r) { return r.cuts_prompt; }))
    chunk = std::max<int64_t>(1, last - first);
  const WorkloadShape& s = workload.shape();
  const size_t tokens = static_cast<size_t>(std::min(chunk, std::max<int64_t>(0, last - first)));
  // Queries without wanted outputs matter only to retentions that score keys, and cost more to make than K and V.
  std::vector<float> q;
  if (any_retention(cache, [](const RetentionEntry& r) { return r.scores; }))
    q.resize(tokens * static_cast<size_t>(s.q_heads * s.head_dim));
  std::vector<float> k(tokens * static_cast<size_t>(s.kv_heads * s.head_dim)), v(k.size());
  for (int64_t at = first; at < last; at += chunk) {
    const int64_t n = std::min(chunk, last - at);
    for (int layer = 0; layer < s.layers; ++layer) {
      if (!cache.keeps_rows(layer)) continue;
      for (size_t i = 0; i < ids.size(); ++i) {
        float* queries = q.empty() ? nullptr : q.data();
        workload.read(first_sequence + static_cast<int>(i), layer, at, n, queries, k.data(), v.data());
        const StepInput in{
            .sequence = ids[i], .n = n, .q = queries, .k = k.data(), .v = v.data(), .out = nullptr};
        cache.step(layer, {&in, 1});
      }
    }
  }
}

}  // namespace kv::workload
