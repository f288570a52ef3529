#include "harness/measure/sweep_point.h"

#include <algorithm>

namespace kv::measure {

std::string SweepPoint::key_of(const std::string& variant, const std::string& suffix) const {
  return experiment->kind + " " + workload + " b" + std::to_string(batch) + " s" + std::to_string(seq_len) +
         shape + " " + variant + (suffix.empty() ? "" : " " + suffix);
}

workload::WorkloadShape shape_of(const SweepPoint& point) {
  if (point.source) return point.source->shape();
  const config::Geometry& g = point.config->served;
  return {.layers = g.model_layers,
          .q_heads = g.q_heads,
          .kv_heads = g.kv_heads,
          .head_dim = g.head_dim,
          .value_dim = g.value_dim,
          .kinds = g.kinds,
          .linear = g.linear};
}

ModelShape cache_shape(const SweepPoint& point, int sequences) {
  const workload::WorkloadShape w = shape_of(point);
  return {{.layers = w.layers,
           .q_heads = w.q_heads,
           .kv_heads = w.kv_heads,
           .head_dim = w.head_dim,
           .max_tokens = point.seq_len,
           .max_sequences = sequences,
           .rope = w.rope,
           .value_dim = w.value_dim},
          w.kinds,
          w.linear};
}

ModelShape model_shape(const SweepPoint& point, int sequences) {
  ModelShape shape = cache_shape(point, sequences);
  const config::Geometry& served = point.config->served;
  const auto is_it = [&](const workload::FamilyInfo& family) { return family.name == point.workload; };
  if (served.model_layers > shape.layers && std::ranges::any_of(workload::synthetic_families(), is_it)) {
    shape.layers = served.model_layers;
    shape.kinds = served.kinds;
    shape.linear = served.linear;
  }
  return shape;
}

double value_count(const SweepPoint& point, double heads, double tokens) {
  const workload::WorkloadShape w = shape_of(point);
  return heads * tokens * w.head_dim * w.row_layers() * point.batch;
}

namespace {

template <class Predict>
int64_t bytes_of(const SweepPoint& point, const Predict& predict) {
  // The closed form in integers could overflow.
  const double floats =
      sizeof(float) * value_count(point, 2.0 * shape_of(point).kv_heads, static_cast<double>(point.seq_len));
  if (floats > 1e15) return static_cast<int64_t>(std::min(floats, 1e18));
  const std::vector<int64_t> lengths(static_cast<size_t>(point.batch), point.seq_len);
  return predict(cache_shape(point, point.batch), lengths);
}

}  // namespace

int64_t held_bytes(const SweepPoint& point, const LayerSpecs& spec) {
  return bytes_of(
      point, [&](const auto& shape, const auto& lengths) { return predicted_bytes(spec, shape, lengths); });
}

int64_t copied_bytes(const SweepPoint& point, const LayerSpecs& spec) {
  return bytes_of(
      point, [&](const auto& shape, const auto& lengths) { return predicted_copies(spec, shape, lengths); });
}

void PointProgress::add(double work) {
  const std::lock_guard lock(mutex_);
  control_.progress((done_ += work) / total_);
}

}  // namespace kv::measure
