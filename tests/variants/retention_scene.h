// Shared by the tests of retentions: workloads, one way to observe the kept tokens of a cache, and the input of the FP64
// policies.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/verify/policy_check.h"
#include "harness/verify/reference/policy_replay.h"
#include "harness/verify/rows.h"
#include "harness/workload/workload.h"
#include "tests/variants/contract.h"

namespace kv::retention_tests {

using namespace contract;
using reference::KeptTokens;
using reference::Policy;
using reference::PolicyInput;
using reference::PolicyRun;

inline constexpr CacheShape kShape{
    .layers = 1, .q_heads = 4, .kv_heads = 2, .head_dim = 32, .max_tokens = 2048};

// f32 kernels against FP64 on the same rows.
inline constexpr double kKernelError = 2e-6;  // f32 rows

inline Tokens read_tokens(std::string_view family, const CacheShape& shape, int64_t n, uint64_t seed) {
  const auto workload = workload::make_synthetic(family,
                                                 {.layers = shape.layers,
                                                  .q_heads = shape.q_heads,
                                                  .kv_heads = shape.kv_heads,
                                                  .head_dim = shape.head_dim},
                                                 seed);
  Tokens t{n,
           std::vector<float>(static_cast<size_t>(shape.q_heads * n * shape.head_dim)),
           std::vector<float>(static_cast<size_t>(shape.kv_heads * n * shape.head_dim)),
           {}};
  t.v = t.k;
  workload->read(0, 0, 0, n, t.q.data(), t.k.data(), t.v.data());
  return t;
}

// The outputs of a cache for a whole sequence, and the tokens kept after each chunk (at the chunk's last token; other
// entries are empty).
struct Observed {
  std::vector<float> out;  // [q_heads, n, head_dim]
  KeptTokens kept;
};

inline Observed observe(const Spec& spec, const CacheShape& shape, const Tokens& all,
                        std::span<const int64_t> chunks) {
  memory::Ledger ledger;
  const auto cache = build_cache(spec, shape, ledger);
  const SequenceId id = cache->add_sequence();
  Observed seen{std::vector<float>(all.q.size()), KeptTokens(static_cast<size_t>(shape.kv_heads))};
  for (auto& kept : seen.kept) kept.resize(static_cast<size_t>(all.n));
  int64_t first = 0;
  for (const int64_t n : chunks) {
    const std::vector<float> out = drive(*cache, id, slice(shape, all, first, n), {&n, 1});
    for (int h = 0; h < shape.q_heads; ++h) {
      std::copy_n(out.begin() + h * n * shape.head_dim, n * shape.head_dim,
                  seen.out.begin() + (h * all.n + first) * shape.head_dim);
    }
    first += n;
    for (int h = 0; h < shape.kv_heads; ++h) seen.kept[h][first - 1] = cache->kept(id, 0, h);
  }
  return seen;
}

// A prompt, then single tokens.
inline std::vector<int64_t> prompt_then_ones(int64_t prompt, int64_t n) {
  std::vector<int64_t> chunks{prompt};
  chunks.insert(chunks.end(), static_cast<size_t>(n - prompt), 1);
  return chunks;
}

inline PolicyInput input_of(const CacheShape& shape, const Tokens& all) {
  return {.q = all.q,
          .k = all.k,
          .v = all.v,
          .raw_k = {},
          .raw_v = {},
          .q_heads = shape.q_heads,
          .kv_heads = shape.kv_heads,
          .n = all.n,
          .head_dim = shape.head_dim,
          .prompt = 0,
          .rotation = reference::plain_rotation(shape.rope.theta, shape.head_dim,
                                                shape.rope.pairs == RopePairs::kHalfSplit)};
}

// The tokens that head 0 keeps at the end, in ascending order.
inline std::set<int64_t> kept_at_end(const Observed& seen, size_t head = 0) {
  return {seen.kept[head].back().begin(), seen.kept[head].back().end()};
}

}  // namespace kv::retention_tests
