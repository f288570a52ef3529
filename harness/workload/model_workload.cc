// Records the tensors between a model and its attention, and reads them back.
#include "harness/workload/model_workload.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace kv::workload {
namespace {

// One tensor of one layer, [heads, tokens, head_dim], filled and read by ranges of tokens.
class Rows {
 public:
  Rows(int heads, int64_t tokens, int head_dim)
      : heads_(heads),
        stride_(tokens * head_dim),
        head_dim_(head_dim),
        values_(static_cast<size_t>(heads * stride_)) {}

  // from [heads, n, head_dim]
  void write(int64_t first, int64_t n, const float* from) {
    const int64_t size = n * head_dim_;
    for (int64_t h = 0; h < heads_; ++h)
      std::copy_n(from + h * size, size, values_.data() + offset(h, first));
  }

  // to [heads, n, head_dim], or null
  void read(int64_t first, int64_t n, float* to) const {
    if (!to) return;
    const int64_t size = n * head_dim_;
    for (int64_t h = 0; h < heads_; ++h) std::copy_n(values_.data() + offset(h, first), size, to + h * size);
  }

 private:
  int64_t offset(int64_t head, int64_t token) const { return head * stride_ + token * head_dim_; }

  int64_t heads_, stride_, head_dim_;
  std::vector<float> values_;
};

struct LayerRows {
  Rows q, k, v;
};

class ModelWorkload : public Workload {
 public:
  ModelWorkload(const model::ModelConfig& config, int64_t tokens, std::string name)
      : shape_{config.layers, config.q_heads, config.kv_heads, config.head_dim(), config.rope},
        tokens_(tokens),
        name_(std::move(name)) {
    const Rows q(shape_.q_heads, tokens, shape_.head_dim), kv(shape_.kv_heads, tokens, shape_.head_dim);
    layers_.assign(static_cast<size_t>(shape_.layers), {q, kv, kv});
  }

  const WorkloadShape& shape() const override { return shape_; }
  std::string name() const override { return name_; }
  int64_t max_tokens() const override { return tokens_; }

  void write(int layer, int64_t first, int64_t n, const float* q, const float* k, const float* v) {
    LayerRows& rows = layers_.at(static_cast<size_t>(layer));
    rows.q.write(first, n, q);
    rows.k.write(first, n, k);
    rows.v.write(first, n, v);
  }

  void read(int, int layer, int64_t first, int64_t n, float* q, float* k, float* v) const override {
    if (first < 0 || n < 0 || n > tokens_ - first) {
      throw std::out_of_range("workload " + name_ + ": tokens [" + std::to_string(first) + ", " +
                              std::to_string(first + n) + ") of " + std::to_string(tokens_));
    }
    const LayerRows& rows = layers_.at(static_cast<size_t>(layer));
    rows.q.read(first, n, q);
    rows.k.read(first, n, k);
    rows.v.read(first, n, v);
  }

 private:
  WorkloadShape shape_;
  int64_t tokens_;
  std::string name_;
  std::vector<LayerRows> layers_;
};

}  // namespace

std::unique_ptr<Workload> capture(const model::Model& model, std::span<const int> tokens,
                                  const model::Model::Attention& attention, std::string name, int64_t chunk,
                                  model::Rotary rotary) {
  if (tokens.empty()) throw std::invalid_argument("workload " + name + ": no tokens, expected at least one");
  if (chunk < 1) {
    throw std::invalid_argument("workload " + name + ": chunk is " + std::to_string(chunk) +
                                ", expected at least 1");
  }
  const int64_t count = static_cast<int64_t>(tokens.size());
  auto workload = std::make_unique<ModelWorkload>(model.config(), count, std::move(name));
  for (int64_t first = 0; first < count; first += chunk) {
    const int64_t n = std::min(chunk, count - first);
    const auto record = [&](int layer, int64_t, const float* q, const float* k, const float* v, float* out) {
      workload->write(layer, first, n, q, k, v);
      attention(layer, n, q, k, v, out);
    };
    model.forward(tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(n)), first, record, rotary);
  }
  return workload;
}

}  // namespace kv::workload
