#include "harness/workload/recorded_workload.h"

#include <algorithm>
#include <stdexcept>

#include "harness/math/random.h"

namespace kv::workload {
namespace {

constexpr uint64_t kPool = 4099;  // prime, so that heads, layers and sequences read it in different phases
// Offsets of Q, K and V in the pool.
constexpr uint64_t kPhaseQ = 0, kPhaseK = 1361, kPhaseV = 2741;

}  // namespace

RecordedWorkload::RecordedWorkload(const Workload& workload, int sequences, int64_t tokens)
    : shape_(workload.shape()), name_(workload.name()), tokens_(tokens) {
  const size_t row = static_cast<size_t>(tokens * shape_.head_dim);
  for (int sequence = 0; sequence < sequences; ++sequence) {
    for (int layer = 0; layer < shape_.layers; ++layer) {
      RecordedLayer& to = layers_.emplace_back();
      to.q.resize(static_cast<size_t>(shape_.q_heads) * row);
      to.k.resize(static_cast<size_t>(shape_.kv_heads) * row);
      to.v.resize(to.k.size());
      workload.read(sequence, layer, 0, tokens, to.q.data(), to.k.data(), to.v.data());
    }
  }
}

const RecordedLayer& RecordedWorkload::at(int sequence, int layer) const {
  return layers_.at(static_cast<size_t>(sequence * shape_.layers + layer));
}

void RecordedWorkload::read(int sequence, int layer, int64_t first, int64_t n, float* q, float* k,
                            float* v) const {
  if (first < 0 || first + n > tokens_) throw std::logic_error("these tokens were not recorded");
  const int64_t d = shape_.head_dim;
  const auto copy = [&](const std::vector<float>& from, int heads, float* to) {
    for (int h = 0; to && h < heads; ++h)
      std::copy_n(from.data() + (h * tokens_ + first) * d, n * d, to + h * n * d);
  };
  const RecordedLayer& from = at(sequence, layer);
  copy(from.q, shape_.q_heads, q);
  copy(from.k, shape_.kv_heads, k);
  copy(from.v, shape_.kv_heads, v);
}

ContextRows::ContextRows(const WorkloadShape& shape, int64_t synthetic, uint64_t seed)
    : shape_(shape),
      synthetic_(synthetic),
      pool_(kPool * static_cast<size_t>(shape.head_dim)),
      q_(static_cast<size_t>(shape.layers * shape.q_heads)),
      k_(static_cast<size_t>(shape.layers * shape.kv_heads)),
      v_(k_.size()) {
  math::random::fill_normal(math::random::key({seed, 0x726f7773}), pool_);
}

void ContextRows::record(int layer, const StepInput& in) {
  const int64_t values = in.n * shape_.head_dim;
  const auto append = [&](Heads& to, int heads, const float* from) {
    for (int h = 0; h < heads; ++h) {
      std::vector<float>& rows = to[static_cast<size_t>(layer * heads + h)];
      rows.insert(rows.end(), from + h * values, from + (h + 1) * values);
    }
  };
  append(q_, shape_.q_heads, in.q);
  append(k_, shape_.kv_heads, in.k);
  append(v_, shape_.kv_heads, in.v);
}

void ContextRows::read(int sequence, int layer, int64_t first, int64_t n, float* q, float* k,
                       float* v) const {
  if (q) read_rows(q_, shape_.q_heads, kPhaseQ, sequence, layer, first, n, q);
  if (k) read_rows(k_, shape_.kv_heads, kPhaseK, sequence, layer, first, n, k);
  if (v) read_rows(v_, shape_.kv_heads, kPhaseV, sequence, layer, first, n, v);
}

void ContextRows::read_rows(const Heads& all, int heads, uint64_t phase, int sequence, int layer,
                            int64_t first, int64_t n, float* to) const {
  const int64_t d = shape_.head_dim;
  for (int h = 0; h < heads; ++h) {
    const std::vector<float>& rows = all[static_cast<size_t>(layer * heads + h)];
    const int64_t recorded = sequence == 0 ? std::ssize(rows) / d : 0;
    for (int64_t t = first; t < first + n; ++t) {
      const bool here = t >= synthetic_ && t < synthetic_ + recorded;
      const float* row = here ? rows.data() + (t - synthetic_) * d : pool_row(phase, sequence, layer, h, t);
      to = std::copy_n(row, d, to);
    }
  }
}

const float* ContextRows::pool_row(uint64_t phase, int sequence, int layer, int head, int64_t token) const {
  const uint64_t row = static_cast<uint64_t>(token) + phase + 97 * static_cast<uint64_t>(layer) +
                       389 * static_cast<uint64_t>(head) + 1009 * static_cast<uint64_t>(sequence);
  return pool_.data() + row % kPool * static_cast<uint64_t>(shape_.head_dim);
}

}  // namespace kv::workload
