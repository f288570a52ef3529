// Weighted values of rows of floats, compiled once for each instruction set.
#include <algorithm>

#include "kernels/cpu/attention/float_work.h"
#include "kernels/cpu/attention/tile.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/float_values.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/float_loads-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"
#include "kernels/cpu/attention/tile-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The rows of a step of the loop. Two share the loop's own instructions; a single query reads rows one by one, as memory
// delivers them.
template <int kQueries>
constexpr int kRowsAStep = kQueries == 1 ? 1 : 2;

// Elements [at, at + kVectors * lanes) of the sums, in the order of the load.
template <int kQueries, int kVectors, class D, class Load>
HWY_INLINE void value_block(D d, Load load, const std::byte* const* v, int rows, const float* p, int at,
                            int head_dim, Prefetcher& prefetcher, float* sum) {
  using V = hn::Vec<D>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  V acc[kQueries][kVectors];
  for (int r = 0; r < kQueries; ++r) {
    for (int x = 0; x < kVectors; ++x) acc[r][x] = hn::LoadU(d, sum + r * head_dim + at + x * lanes);
  }
  const auto add = [&](int j) KV_INLINE {
    V value[kVectors];
    for (int x = 0; x < kVectors; x += Load::kVectors) load(d, v[j], at + x * lanes, value + x);
    for (int r = 0; r < kQueries; ++r) {
      const V weight = hn::Set(d, p[r * kScoreStride + j]);
      for (int x = 0; x < kVectors; ++x) acc[r][x] = hn::MulAdd(weight, value[x], acc[r][x]);
    }
  };
  constexpr int kRows = kRowsAStep<kQueries>;
  int j = 0;
  for (; j + kRows <= rows; j += kRows) {
    prefetcher.step();
    for (int i = 0; i < kRows; ++i) add(j + i);
  }
  for (; j < rows; ++j) {
    prefetcher.step();
    add(j);
  }
  for (int r = 0; r < kQueries; ++r) {
    for (int x = 0; x < kVectors; ++x) hn::StoreU(acc[r][x], d, sum + r * head_dim + at + x * lanes);
  }
}

// The vectors of a row that kQueries queries' weights multiply at once, by the registers for their sums. One query has all of
// those, so that long rows are read from end to end.
template <int kQueries, class D>
constexpr int kVectorsAtOnce = kQueries == 1 ? kSumsAtOnce<D> : std::min(4, kSumsAtOnce<D> / kQueries);

// The queries of a block that work together: fewer where a load makes more vectors than there are registers for.
template <int kQueries, class D, class Load>
constexpr int kQueriesAtOnce = std::min(kQueries, kSumsAtOnce<D> / std::max(2, Load::kVectors));

template <int kQueries, class D, class Load>
void value_rows(D d, Load load, const std::byte* const* v, int rows, const float* p, int head_dim,
                Prefetcher& prefetcher, float* sum) {
  constexpr int kTogether = kQueriesAtOnce<kQueries, D, Load>, kMost = kVectorsAtOnce<kTogether, D>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int r = 0; r < kQueries; r += kTogether, p += kTogether * kScoreStride, sum += kTogether * head_dim) {
    int at = 0;
    for (; at + kMost * lanes <= head_dim; at += kMost * lanes)
      value_block<kTogether, kMost>(d, load, v, rows, p, at, head_dim, prefetcher, sum);
    if constexpr (kMost > 4) {
      for (; at + 4 * lanes <= head_dim; at += 4 * lanes)
        value_block<kTogether, 4>(d, load, v, rows, p, at, head_dim, prefetcher, sum);
    }
    for (; at < head_dim; at += Load::kVectors * lanes)
      value_block<kTogether, Load::kVectors>(d, load, v, rows, p, at, head_dim, prefetcher, sum);
  }
}

// How often values prefetch while they pass over so many rows.
template <int kQueries, class D, class Load>
int value_steps(D d, Load, int rows, int head_dim) {
  constexpr int kTogether = kQueriesAtOnce<kQueries, D, Load>, kMost = kVectorsAtOnce<kTogether, D>;
  const int vectors = head_dim / static_cast<int>(hn::Lanes(d)), left = vectors % kMost;
  const int of_rest = kMost > 4 ? left / 4 + left % 4 / Load::kVectors : left / Load::kVectors;
  return kQueries / kTogether * (vectors / kMost + of_rest) *
         ((rows + kRowsAStep<kTogether> - 1) / kRowsAStep<kTogether>);
}

// Sums in the order of the load. A few rows at a time, so that they are read about in their order.
template <class D, class Load>
void add_rows(D d, Load load, const FloatRows& rows, const FloatWork& work, const float* p) {
  constexpr int kRows = 16;
  Prefetcher prefetcher = work.prefetcher;  // a local one can live in registers
  const int queries = static_cast<int>(work.task.queries), head_dim = work.head_dim;
  int steps = 0;
  for_query_blocks(queries, [&](auto some, int) KV_INLINE {
    steps += value_steps<decltype(some)::value>(d, load, rows.count, head_dim);
  });
  prefetcher.begin_part(steps);
  const std::byte* const* v = rows.row;
  for (int j = 0; j < rows.count; j += kRows, v += kRows, p += kRows) {
    const int now = std::min(kRows, rows.count - j);
    for_query_blocks(queries, [&](auto some, int r) KV_INLINE {
      value_rows<decltype(some)::value>(d, load, v, now, p + r * kScoreStride, head_dim, prefetcher,
                                        work.task.sum + r * head_dim);
    });
  }
  work.prefetcher = prefetcher;
}

// ---- the order of sums ----

// x [n] into the order of kVectors vectors, or back from it.
template <int kVectors, class D>
void interleave(D d, float* x, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += kVectors * lanes) {
    hn::Vec<D> v[kVectors];
    load_interleaved<kVectors>(d, x + i, v);
    for (int p = 0; p < kVectors; ++p) hn::StoreU(v[p], d, x + i + p * lanes);
  }
}
template <int kVectors, class D>
void deinterleave(D d, float* x, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += kVectors * lanes) {
    hn::Vec<D> v[kVectors];
    for (int p = 0; p < kVectors; ++p) v[p] = hn::LoadU(d, x + i + p * lanes);
    if constexpr (kVectors == 2) hn::StoreInterleaved2(v[0], v[1], d, x + i);
    if constexpr (kVectors == 4) hn::StoreInterleaved4(v[0], v[1], v[2], v[3], d, x + i);
  }
}

// Brings the task's sums into the order of a load of so many vectors of D.
template <class D>
void order_sums(D d, const FloatWork& work, int vectors, SumOrder& order) {
  if (vectors == order.vectors) return;
  const int64_t n = work.task.queries * work.head_dim;
  if (order.vectors == 2) deinterleave<2>(d, work.task.sum, n);
  if (order.vectors == 4) deinterleave<4>(d, work.task.sum, n);
  if (vectors == 2) interleave<2>(d, work.task.sum, n);
  if (vectors == 4) interleave<4>(d, work.task.sum, n);
  order.vectors = vectors;
}

void restore_order(const FloatWork& work, SumOrder& order) {
  if (order.vectors == 1) return;
  with_load(Format::kF32, work.head_dim, [&](auto d, auto) KV_ATTR { order_sums(d, work, 1, order); });
}

void add_floats(const FloatRows& rows, const FloatWork& work, SumOrder& order, float* p) {
  with_load(rows.format, work.head_dim, [&](auto d, auto load) KV_ATTR {
    using Load = decltype(load);
    for (int64_t r = 0; rows.scale && r < work.task.queries; ++r) {
      float* at = p + r * kScoreStride;
      for (int j = 0; j < rows.count; ++j) at[j] = at[j] * Load::kFactor * rows.scale[j];
    }
    order_sums(d, work, Load::kVectors, order);
    add_rows(d, load, rows, work, p);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
