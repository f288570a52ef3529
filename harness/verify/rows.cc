#include "harness/verify/rows.h"

#include <algorithm>

#include "kernels/encode.h"
#include "variants/cache/build.h"

namespace kv::verify {
namespace {

constexpr int64_t kChunk = 4096;  // tokens that are read at once

}  // namespace

std::vector<HeadRows> read_heads(const workload::Workload& workload, int sequence, int layer, int64_t tokens,
                                 const std::vector<bool>& wanted) {
  const int heads = workload.shape().kv_heads, d = workload.shape().head_dim;
  std::vector<HeadRows> rows(static_cast<size_t>(heads));
  for (int h = 0; h < heads; ++h) {
    if (!wanted[static_cast<size_t>(h)]) continue;
    for (auto* to : {&rows[static_cast<size_t>(h)].k, &rows[static_cast<size_t>(h)].v})
      to->reserve(static_cast<size_t>(tokens * d));
  }
  std::vector<float> k(static_cast<size_t>(heads * std::min(kChunk, tokens) * d)), v(k.size());
  for (int64_t first = 0; first < tokens; first += kChunk) {
    const int64_t n = std::min(kChunk, tokens - first);
    workload.read(sequence, layer, first, n, nullptr, k.data(), v.data());
    for (int h = 0; h < heads; ++h) {
      if (!wanted[static_cast<size_t>(h)]) continue;
      HeadRows& to = rows[static_cast<size_t>(h)];
      to.k.insert(to.k.end(), k.begin() + h * n * d, k.begin() + (h + 1) * n * d);
      to.v.insert(to.v.end(), v.begin() + h * n * d, v.begin() + (h + 1) * n * d);
    }
  }
  return rows;
}

HeadRows pick(const HeadRows& all, std::span<const int64_t> tokens, int head_dim) {
  const int d = head_dim;
  HeadRows some;
  for (const int64_t t : tokens) {
    some.k.insert(some.k.end(), all.k.begin() + t * d, all.k.begin() + (t + 1) * d);
    some.v.insert(some.v.end(), all.v.begin() + t * d, all.v.begin() + (t + 1) * d);
  }
  return some;
}

HeadRows stored_rows(Cache& cache, SequenceId id, int layer, int kv_head) {
  const int d = cache.shape().head_dim;
  const std::vector<Span> spans = cache.spans(id, layer, kv_head);
  int64_t rows = 0;
  for (const Span& span : spans) rows += span.rows;
  HeadRows stored{std::vector<float>(static_cast<size_t>(rows * d)),
                  std::vector<float>(static_cast<size_t>(rows * d))};
  int64_t at = 0;
  for (const Span& span : spans) {
    decode_rows(span.k, d, 0, span.rows, stored.k.data() + at * d);
    decode_rows(span.v, d, 0, span.rows, stored.v.data() + at * d);
    at += span.rows;
  }
  return stored;
}

std::unique_ptr<Cache> before_the_cut(const Cache& cache, const workload::Workload& workload, int sequence,
                                      int layer, int64_t tokens, memory::Ledger& ledger) {
  CacheShape shape = cache.shape();
  shape.layers = shape.max_sequences = 1;
  std::unique_ptr<Cache> uncut = build_cache(cache.spec(), shape, ledger);
  const SequenceId id = uncut->add_sequence();
  std::vector<float> k(static_cast<size_t>(shape.kv_heads * shape.head_dim)), v(k.size());
  for (int64_t t = 0; t < tokens; ++t) {
    workload.read(sequence, layer, t, 1, nullptr, k.data(), v.data());
    const StepInput in{.sequence = id, .n = 1, .k = k.data(), .v = v.data()};
    uncut->append(0, {&in, 1});
  }
  return uncut;
}

}  // namespace kv::verify
