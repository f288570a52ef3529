// Partial results to outputs, always in the order of the splits, so that every run gives the same bits: what
// the last block of attention to arrive does, and what merge.h launches.
#pragma once

#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/simt/simt.h"

namespace kv::cuda {

struct Merged {
  float max = -INFINITY, sum = 0.0f, value = 0.0f;
};

// Element d of a query, over its splits. A few splits are on their way at once, since the reads take longer
// than all else: none depends on another's result, nor on a branch.
KV_DEVICE Merged merge_element(const Problem& p, const MergeParams& params, int query, int d) {
  constexpr int kAtOnce = 8;
  const Partials& all = params.partials;
  const int splits = p.splits;
  const int64_t of_first = partial_of(p, params.group, 0, query), apart = int64_t{params.group} * p.n;
  Merged merged;
  for (int first = 0; first < splits; first += kAtOnce) {
    Merged part[kAtOnce];
    KV_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int split = first + i < splits ? first + i : splits - 1;  // the last one again, and not counted
      const int64_t at = of_first + split * apart;
      part[i] = {simt::read_fresh(all.max + at), simt::read_fresh(all.sum + at),
                 simt::read_fresh(all.values + at * params.head_dim + d)};
    }
    float higher = merged.max;
    KV_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= splits) part[i] = {};
      higher = simt::larger(higher, part[i].max);
    }
    if (higher == -INFINITY) continue;  // the query saw none of these rows
    const float rescale = simt::exp2(merged.max - higher);
    merged = {higher, merged.sum * rescale, merged.value * rescale};
    KV_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const float factor = simt::exp2(part[i].max - higher);
      merged.sum = simt::fma(part[i].sum, factor, merged.sum);
      merged.value = simt::fma(part[i].value, factor, merged.value);
    }
  }
  return merged;
}

// A block's threads; queries [first, first + count) of a problem.
KV_DEVICE void merge_queries(const MergeParams& params, int problem, int first, int count) {
  const Problem& p = params.problems[problem];
  for (int i = simt::thread(); i < count * params.head_dim; i += simt::threads()) {
    const int query = first + i / params.head_dim, d = i % params.head_dim;
    const Merged merged = merge_element(p, params, query, d);
    p.out[int64_t{query} * params.head_dim + d] = merged.value / merged.sum;
    if (params.log_sum && d == 0) {
      params.log_sum[int64_t{problem} * params.most_queries + query] = merged.max + simt::log2(merged.sum);
    }
  }
}

// Whether this block is the last of `all` that come to a counter, which is 0 then as it was before the first
// did. What the others wrote before they came is there to read. `shared`: 4 bytes of shared memory.
KV_DEVICE bool arrives_last(unsigned* counter, int all, std::byte* shared) {
  auto* order = reinterpret_cast<unsigned*>(shared);
  const auto last = static_cast<unsigned>(all) - 1;
  simt::fence();
  simt::sync_block();  // all threads have written before one of them counts the block
  if (simt::thread() == 0) *order = simt::count_up(counter, last);
  simt::sync_block();
  if (*order != last) return false;
  simt::fence();
  return true;
}

}  // namespace kv::cuda
