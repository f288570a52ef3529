#include "harness/tables/model_memory.h"

#include <algorithm>
#include <stdexcept>

#include "harness/math/random.h"
#include "harness/memory/ledger.h"
#include "harness/workload/token_feed.h"
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

// All sequences are prompts of the same length.
std::vector<int64_t> lengths(const Load& load) {
  return std::vector<int64_t>(static_cast<size_t>(load.batch), load.tokens);
}

}  // namespace

ModelMemory::ModelMemory(const config::Geometry& geometry, const LayerSpecs& specs, const Load& load)
    : load_(load),
      specs_(specs),
      shape_(config::shape_of(geometry, load.tokens, load.batch)),
      groups_(groups_of(specs_, shape_)) {
  std::erase_if(groups_, [&](const LayerGroup& g) { return g.linear && geometry.linear.value_heads == 0; });
}

std::string ModelMemory::unsupported() const { return unsupported_reason(specs_, shape_); }

int64_t ModelMemory::predicted_bytes() const {
  int64_t bytes = 0;
  for (const LayerGroup& group : groups_) bytes = std::min(bytes + predicted_bytes(group), kBeyondAnyMachine);
  return bytes;
}

int64_t ModelMemory::predicted_bytes(const LayerGroup& group) const {
  const CacheShape s = shape_of(group);
  if (group.linear) return linear_state_bytes(shape_.linear) * s.layers * load_.batch;
  // The closed form, in whole numbers, could overflow. f32 with as much again in slack is the most there is.
  const double most =
      16.0 * s.layers * s.kv_heads * s.head_dim * static_cast<double>(load_.tokens) * load_.batch;
  if (most > static_cast<double>(kBeyondAnyMachine)) return kBeyondAnyMachine;
  const std::vector<int64_t> tokens = lengths(load_);
  return kv::predicted_bytes(group.spec, s, tokens, tokens);
}

TierBytes ModelMemory::predicted_tiers(const LayerGroup& group) const {
  if (!group.linear && has_tiers(group.spec)) {
    const std::vector<int64_t> tokens = lengths(load_);
    return kv::predicted_tiers(group.spec, shape_of(group), tokens, tokens);
  }
  return {.hot = predicted_bytes(group)};
}

TierBytes ModelMemory::predicted_tiers() const {
  TierBytes bytes;
  for (const LayerGroup& group : groups_) {
    const TierBytes its = predicted_tiers(group);
    bytes.hot = std::min(bytes.hot + its.hot, kBeyondAnyMachine);
    bytes.warm += its.warm;
    bytes.disk += its.disk;
  }
  return bytes;
}

double ModelMemory::filling_bytes() const {
  double bytes = 0.0;
  for (const LayerGroup& group : groups_) {
    if (group.linear) continue;  // counted without a token in it
    const CacheShape s = shape_of(group);
    const double tokens = static_cast<double>(load_.tokens) * load_.batch * s.layers;
    bytes += tokens * 2 * sizeof(float) * s.kv_heads * s.head_dim;
    // Every query reads the K and V of all that is kept.
    if (retention_of(group.spec).scores)
      bytes += tokens * 2 * sizeof(float) * s.q_heads * s.head_dim *
               static_cast<double>(kept_rows(group.spec, load_.tokens));
  }
  return bytes;
}

int64_t ModelMemory::ledger_bytes(int64_t limit_bytes) const {
  int64_t bytes = 0;
  for (const LayerGroup& group : groups_) bytes += ledger_bytes(group, limit_bytes);
  return bytes;
}

int64_t ModelMemory::ledger_bytes(const LayerGroup& group, int64_t limit_bytes) const {
  memory::Ledger ledger(limit_bytes);
  const CacheShape shape = shape_of(group);
  const auto cache = group.linear ? build_linear_cache(shape_.linear, shape, ledger)
                                  : build_cache(group.spec, shape, ledger);
  std::vector<SequenceId> ids;
  for (int i = 0; i < load_.batch; ++i) ids.push_back(cache->add_sequence());
  // A state has its size before the first token.
  if (!group.linear) workload::prefill(*cache, FillerWorkload(shape), ids, 0, load_.tokens);
  ledger.assert_balanced();
  const int64_t counted = ledger.payload().current_bytes + ledger.metadata().current_bytes;
  const int64_t disk = ledger.disk().current_bytes;
  if (counted != predicted_bytes(group) || disk != predicted_tiers(group).disk) {
    throw std::logic_error("'" + (group.linear ? "linear layers" : group.spec.print()) + "' holds " +
                           std::to_string(counted) + " bytes and " + std::to_string(disk) +
                           " on the disk, but its closed form says " +
                           std::to_string(predicted_bytes(group)));
  }
  return counted;
}

}  // namespace kv::tables
