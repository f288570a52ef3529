#include "harness/tables/model_cache.h"

#include <algorithm>
#include <stdexcept>

#include "harness/math/random.h"
#include "harness/memory/ledger.h"
#include "harness/workload/token_feed.h"
#include "variants/cache/build.h"
#include "variants/cache/spec.h"

namespace kv::tables {
namespace {

constexpr int64_t kBeyondAnyMachine = int64_t{1} << 62;

// Normal values, over and over. What a cache holds does not depend on them, but rows of zeros would be a case
// of their own for the codecs.
class FillerWorkload : public workload::Workload {
 public:
  explicit FillerWorkload(const CacheShape& s)
      : shape_{.layers = s.layers, .q_heads = s.q_heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim},
        values_(1 << 16) {
    math::random::fill_normal(math::random::key({1}), values_);
  }
  const workload::WorkloadShape& shape() const override { return shape_; }
  std::string name() const override { return "filler"; }
  int64_t max_tokens() const override { return INT64_MAX; }
  void read(int, int, int64_t, int64_t n, float* q, float* k, float* v) const override {
    fill(q, n * shape_.q_heads * shape_.head_dim);
    fill(k, n * shape_.kv_heads * shape_.head_dim);
    fill(v, n * shape_.kv_heads * shape_.head_dim);
  }

 private:
  void fill(float* to, int64_t count) const {
    const auto period = static_cast<int64_t>(values_.size());
    for (int64_t at = 0; to && at < count; at += period)
      std::copy_n(values_.begin(), std::min(period, count - at), to + at);
  }

  workload::WorkloadShape shape_;
  std::vector<float> values_;
};

int64_t kept_rows(const Spec& spec, int64_t tokens) {
  return retention_of(spec).slots(spec.retention, {tokens, tokens, tokens});
}

Spec ring(Spec spec, int64_t window) {
  spec.retention = parse_spec("contiguous/f32/ring(window=" + std::to_string(window) + ")").retention;
  return spec;
}

// All sequences are prompts of the same length.
std::vector<int64_t> lengths(const Load& load) {
  return std::vector<int64_t>(static_cast<size_t>(load.batch), load.tokens);
}

}  // namespace

ModelCache::ModelCache(const config::Geometry& geometry, const Spec& spec, const Load& load)
    : load_(load), latent_(geometry.latent_dim > 0) {
  const CacheShape shape{.layers = geometry.layers - geometry.windowed_layers,
                         .q_heads = geometry.q_heads,
                         .kv_heads = geometry.kv_heads,
                         .head_dim = geometry.head_dim,
                         .max_tokens = load.tokens,
                         .max_sequences = load.batch};
  if (shape.layers > 0) parts_.push_back({spec, shape, false});
  if (geometry.windowed_layers == 0) return;
  CacheShape windowed = shape;
  windowed.layers = geometry.windowed_layers;
  const bool cut = kept_rows(spec, load.tokens) > geometry.window;
  parts_.push_back({cut ? ring(spec, geometry.window) : spec, windowed, cut});
}

std::string ModelCache::unsupported() const {
  for (const Part& part : parts_) {
    const std::string reason = latent_ ? unsupported_latent_reason(part.spec, part.shape.head_dim)
                                       : unsupported_reason(part.spec, part.shape.head_dim);
    if (!reason.empty()) return (part.cut ? "layers with a window keep it as a ring: " : "") + reason;
  }
  return "";
}

int64_t ModelCache::predicted_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) bytes = std::min(bytes + predicted_bytes(part), kBeyondAnyMachine);
  return bytes;
}

int64_t ModelCache::predicted_bytes(const Part& part) const {
  const CacheShape& s = part.shape;
  // The closed form, in whole numbers, could overflow. f32 with as much again in slack is the most there is.
  const double most =
      16.0 * s.layers * s.kv_heads * s.head_dim * static_cast<double>(load_.tokens) * load_.batch;
  if (most > static_cast<double>(kBeyondAnyMachine)) return kBeyondAnyMachine;
  const std::vector<int64_t> tokens = lengths(load_);
  return latent_ ? predicted_latent_bytes(part.spec, s, tokens, tokens)
                 : kv::predicted_bytes(part.spec, s, tokens, tokens);
}

int64_t ModelCache::predicted_disk_bytes() const {
  if (latent_) return 0;
  int64_t bytes = 0;
  for (const Part& part : parts_) bytes += kv::predicted_disk_bytes(part.spec, part.shape, lengths(load_));
  return bytes;
}

double ModelCache::filling_bytes() const {
  double bytes = 0.0;
  for (const Part& part : parts_) {
    const CacheShape& s = part.shape;
    const double tokens = static_cast<double>(load_.tokens) * load_.batch * s.layers;
    bytes += tokens * 2 * sizeof(float) * s.kv_heads * s.head_dim;
    // Every query reads the K and V of all that is kept.
    if (retention_of(part.spec).scores)
      bytes += tokens * 2 * sizeof(float) * s.q_heads * s.head_dim *
               static_cast<double>(kept_rows(part.spec, load_.tokens));
  }
  return bytes;
}

int64_t ModelCache::ledger_bytes(int64_t limit_bytes) const {
  int64_t bytes = 0;
  for (const Part& part : parts_) bytes += ledger_bytes(part, limit_bytes);
  return bytes;
}

int64_t ModelCache::ledger_bytes(const Part& part, int64_t limit_bytes) const {
  memory::Ledger ledger(limit_bytes);
  const auto cache = build_cache(part.spec, part.shape, ledger);
  std::vector<SequenceId> ids;
  for (int i = 0; i < load_.batch; ++i) ids.push_back(cache->add_sequence());
  workload::prefill(*cache, FillerWorkload(part.shape), ids, 0, load_.tokens);
  ledger.assert_balanced();
  const int64_t counted = ledger.payload().current_bytes + ledger.metadata().current_bytes;
  const int64_t disk = ledger.disk().current_bytes;
  if (counted != predicted_bytes(part) ||
      disk != kv::predicted_disk_bytes(part.spec, part.shape, lengths(load_))) {
    throw std::logic_error("'" + part.spec.print() + "' holds " + std::to_string(counted) + " bytes and " +
                           std::to_string(disk) + " on the disk, but its closed form says " +
                           std::to_string(predicted_bytes(part)));
  }
  return counted;
}

}  // namespace kv::tables
