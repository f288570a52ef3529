#include "harness/tables/closed_form.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "harness/memory/ledger.h"
#include "harness/workload/token_feed.h"
#include "variants/cache/predicted_bytes.h"
#include "variants/cache/spec.h"

namespace kv::tables {
namespace {

// Nobody reads the values, so they need not be made up.
class Zeros : public workload::Workload {
 public:
  explicit Zeros(const CacheShape& s)
      : shape_{.layers = s.layers, .q_heads = s.q_heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim} {}
  const workload::WorkloadShape& shape() const override { return shape_; }
  std::string name() const override { return "zeros"; }
  int64_t max_tokens() const override { return INT64_MAX; }
  void read(int, int, int64_t, int64_t n, float* q, float* k, float* v) const override {
    const auto clear = [&](float* to, int heads) {
      if (to) std::memset(to, 0, static_cast<size_t>(heads * n * shape_.head_dim) * sizeof(float));
    };
    clear(q, shape_.q_heads);
    clear(k, shape_.kv_heads);
    clear(v, shape_.kv_heads);
  }

 private:
  workload::WorkloadShape shape_;
};

}  // namespace

int64_t bytes_by_form(const CacheSize& size) {
  // In floating point first: the closed form is in whole numbers, which could overflow.
  const CacheShape& s = size.shape;
  const double floats = 2.0 * s.layers * s.kv_heads * s.head_dim * s.max_sequences *
                        static_cast<double>(std::max(size.tokens, s.max_tokens));
  if (floats > 1e17)
    throw std::invalid_argument("a cache of " + std::to_string(size.tokens) +
                                " tokens is beyond any machine");
  return predicted_bytes(size.spec, s,
                         std::vector<int64_t>(static_cast<size_t>(s.max_sequences), size.tokens));
}

namespace {

// If attention decides which rows are kept, filling makes every query read all of them at every token.
double bytes_read_by_filling(const CacheSize& size, int64_t held_bytes) {
  if (!retention_of(size.spec).scores) return 0.0;
  return static_cast<double>(held_bytes) * static_cast<double>(size.tokens) * size.shape.q_heads /
         size.shape.kv_heads;
}

constexpr double kMostBytesRead = 64e9;  // some ten seconds

}  // namespace

std::optional<int64_t> bytes_by_ledger(const CacheSize& size, int64_t limit_bytes) {
  const int64_t held_bytes = bytes_by_form(size);
  if (held_bytes > limit_bytes || bytes_read_by_filling(size, held_bytes) > kMostBytesRead)
    return std::nullopt;
  memory::Ledger ledger;
  const auto cache = build_cache(size.spec, size.shape, ledger);
  std::vector<SequenceId> ids;
  for (int i = 0; i < size.shape.max_sequences; ++i) ids.push_back(cache->add_sequence());
  workload::prefill(*cache, Zeros(size.shape), ids, 0, size.tokens);
  return ledger.payload().current_bytes + ledger.metadata().current_bytes;
}

std::optional<int64_t> CountedBytes::of(const CacheSize& size) {
  const CacheShape& s = size.shape;
  std::string key = size.spec.print();
  for (const int64_t n : {int64_t{s.layers}, int64_t{s.kv_heads}, int64_t{s.head_dim}, s.max_tokens,
                          int64_t{s.max_sequences}, size.tokens})
    key += " " + std::to_string(n);
  const auto [at, fresh] = counted_.try_emplace(key);
  if (fresh) at->second = bytes_by_ledger(size, limit_bytes_);
  return at->second;
}

}  // namespace kv::tables
