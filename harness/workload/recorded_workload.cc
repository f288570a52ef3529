#include "harness/workload/recorded_workload.h"

#include <algorithm>
#include <stdexcept>

namespace kv::workload {

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

}  // namespace kv::workload
