// Scores of rows of floats, compiled once for each instruction set.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/attention/float_work.h"
#include "kernels/cpu/attention/tile.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/float_scores.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/float_loads-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"
#include "kernels/cpu/attention/tile-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/unroll-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kKeys = 4;  // keys of a register block

// Stored rows of f32 with this many bytes or more are read one key at a time by a single query: memory delivers them
// faster in their order. Shorter rows, and decoded ones, take longer so, waiting for their sums; rows of narrower formats
// took up to 1.2 times as long.
constexpr int kLongRow = 512;

// One of a block's queries -> where its vectors belong in the block, which has kQueries of each. Returns what undoes
// the scaling of it and of the rows.
template <int kQueries, class Load, class D>
HWY_INLINE float pack_query(D d, Load, const float* q, int head_dim, float* packed) {
  using V = hn::Vec<D>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  float enlarge = 1.0f;
  if (Load::kFactor != 1.0f) {
    V top = hn::Zero(d);
    for (int i = 0; i < head_dim; i += lanes) top = hn::Max(top, hn::Abs(hn::LoadU(d, q + i)));
    const float largest = hn::GetLane(hn::MaxOfLanes(d, top));
    enlarge = largest < 0x1p-40f ? 0x1p120f : largest < 0x1p60f ? 0x1p60f : 1.0f;
  }
  for (int i = 0; i < head_dim; i += Load::kVectors * lanes) {
    V x[Load::kVectors];
    load_interleaved<Load::kVectors>(d, q + i, x);
    for (const V& v : x) {
      hn::Store(hn::Mul(v, hn::Set(d, enlarge)), d, packed);
      packed += kQueries * lanes;
    }
  }
  return Load::kFactor / enlarge;
}

template <class D, class Load>
void pack_queries(D d, Load load, const AttentionTask& task, int head_dim, PackedQueries& out) {
  const int lanes = static_cast<int>(hn::Lanes(d));
  for_query_blocks(static_cast<int>(task.queries), [&](auto some, int first) KV_INLINE {
    constexpr int kQueries = decltype(some)::value;
    for (int r = 0; r < kQueries; ++r)
      out.restore[first + r] = pack_query<kQueries>(d, load, task.query(first + r, head_dim), head_dim,
                                                    out.q + first * head_dim + r * lanes);
  });
}

// A block of packed queries against 4 keys -> scores [kQueries, 4], rows kScoreStride apart.
template <int kQueries, class D, class Load>
HWY_INLINE void score_block(D d, Load load, const std::byte* const* k, const float* q, int head_dim,
                            Prefetcher& prefetcher, float* scores) {
  using V = hn::Vec<D>;
  constexpr int kVectors = Load::kVectors;
  // Keys whose sums there are registers for, and those that are loaded at once.
  constexpr int kTogether = std::min(kKeys, kSumsAtOnce<D> / kQueries);
  constexpr int kLoaded = std::min(kTogether, kSumsAtOnce<D> / 2 / kVectors);
  const int lanes = static_cast<int>(hn::Lanes(d));
  V acc[kQueries][kKeys];
  unroll<kKeys / kTogether>([&](auto pass) KV_INLINE {
    constexpr int kFirst = decltype(pass)::value * kTogether;
    V sum[kQueries][kTogether];
    for (auto& row : sum) {
      for (V& x : row) x = hn::Zero(d);
    }
    const float* at = q;
    for (int i = 0; i < head_dim; i += kVectors * lanes, at += kVectors * kQueries * lanes) {
      if (kFirst == 0) prefetcher.step();
      for (int j = 0; j < kTogether; j += kLoaded) {
        V key[kLoaded][kVectors];
        for (int t = 0; t < kLoaded; ++t) load(d, k[kFirst + j + t], i, key[t]);
        for (int x = 0; x < kVectors; ++x) {
          for (int r = 0; r < kQueries; ++r) {
            const V query = hn::Load(d, at + (x * kQueries + r) * lanes);
            for (int t = 0; t < kLoaded; ++t) sum[r][j + t] = hn::MulAdd(key[t][x], query, sum[r][j + t]);
          }
        }
      }
    }
    for (int r = 0; r < kQueries; ++r) {
      for (int j = 0; j < kTogether; ++j) acc[r][kFirst + j] = sum[r][j];
    }
  });
  const hn::CappedTag<float, 4> four;
  for (int r = 0; r < kQueries; ++r)
    hn::StoreU(sums_of_four(d, acc[r][0], acc[r][1], acc[r][2], acc[r][3]), four, scores + r * kScoreStride);
}

// One packed query against 4 keys of f32, each from end to end -> scores [4], the same bits as score_block()'s.
template <class D>
HWY_INLINE void score_one_by_one(D d, const std::byte* const* k, const float* q, int head_dim,
                                 Prefetcher& prefetcher, float* scores) {
  using V = hn::Vec<D>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  V acc[kKeys];
  for (int j = 0; j < kKeys; ++j) {
    acc[j] = hn::Zero(d);
    const auto* key = reinterpret_cast<const float*>(k[j]);
    for (int i = 0; i < head_dim; i += lanes) {
      if (j == 0) prefetcher.step();
      acc[j] = hn::MulAdd(hn::LoadU(d, key + i), hn::Load(d, q + i), acc[j]);
    }
  }
  hn::StoreU(sums_of_four(d, acc[0], acc[1], acc[2], acc[3]), hn::CappedTag<float, 4>(), scores);
}

template <class D, class Load>
void score_rows(D d, Load load, const FloatRows& rows, const FloatWork& work, const float* packed,
                float* scores) {
  Prefetcher prefetcher = work.prefetcher;  // a local one can live in registers
  const int queries = static_cast<int>(work.task.queries), head_dim = work.head_dim;
  const int steps = head_dim / (Load::kVectors * static_cast<int>(hn::Lanes(d)));
  prefetcher.begin_part(int64_t{(rows.count + kKeys - 1) / kKeys} * steps * query_blocks(queries));
  for (int j = 0; j < rows.count; j += kKeys) {
    if constexpr (std::is_same_v<Load, LoadF32>) {
      if (queries == 1 && head_dim * Load::kBytes >= kLongRow && !rows.decoded) {
        score_one_by_one(d, rows.row + j, packed, head_dim, prefetcher, scores + j);
        continue;
      }
    }
    for_query_blocks(queries, [&](auto some, int r) KV_INLINE {
      score_block<decltype(some)::value>(d, load, rows.row + j, packed + r * head_dim, head_dim, prefetcher,
                                         scores + r * kScoreStride + j);
    });
  }
  work.prefetcher = prefetcher;
}

void score_floats(const FloatRows& rows, const FloatWork& work, PackedQueries& packed, float* scores) {
  with_load(rows.format, work.head_dim, [&](auto d, auto load) KV_ATTR {
    if (packed.packed_for != rows.format) pack_queries(d, load, work.task, work.head_dim, packed);
    packed.packed_for = rows.format;
    score_rows(d, load, rows, work, packed.q, scores);
  });
  for (int64_t r = 0; rows.scale && r < work.task.queries; ++r) {
    float* at = scores + r * kScoreStride;
    for (int j = 0; j < rows.count; ++j) at[j] = at[j] * packed.restore[r] * rows.scale[j];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
