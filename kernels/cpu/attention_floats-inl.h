// Scores and weighted values of rows whose elements are floats: f32, f16, bf16, fp8. Elements are widened in
// registers; FP8's row scale is left out of them and goes into the score, or into the weight. Private to
// kernels/cpu; compiled once a target.
#if defined(KV_ATTENTION_FLOATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_ATTENTION_FLOATS_INL_H_
#undef KV_ATTENTION_FLOATS_INL_H_
#else
#define KV_ATTENTION_FLOATS_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include <hwy/highway.h>

#include "kernels/cpu/fold-inl.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/tile.h"

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kKeys = 4;  // keys of a register block

// ---- loads: elements i … of a row, without its scale, as f32 ----

struct LoadF32 {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const std::byte* row, int i) const {
    return hn::LoadU(d, reinterpret_cast<const float*>(row) + i);
  }
};
struct LoadF16 {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const std::byte* row, int i) const {
    const hn::Rebind<uint16_t, D> d16;
    return widen_half(d, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(row) + i));
  }
};
struct LoadBf16 {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const std::byte* row, int i) const {
    const hn::Rebind<hwy::bfloat16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(row) + i));
  }
};

// E5M2 is the upper byte of an f16.
struct LoadE5M2 {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const std::byte* row, int i) const {
    const hn::Rebind<uint8_t, D> d8;
    const hn::Rebind<uint16_t, D> d16;
    const auto codes = hn::LoadU(d8, reinterpret_cast<const uint8_t*>(row) + i);
    return widen_half(d, hn::ShiftLeft<8>(hn::PromoteTo(d16, codes)));
  }
};

// E4M3, shifted to f16's place, is the element divided by 2^8, subnormals included. Its NaN is not f16's:
// rows that hold one are not for this loop.
struct LoadE4M3 {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const std::byte* row, int i) const {
    const hn::Rebind<int8_t, D> d8;
    const hn::Rebind<int16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> half;
    const auto codes = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(row) + i));
    // The sign has come twice; the mask takes the second one away.
    const auto bits = hn::And(hn::ShiftLeft<7>(codes), hn::Set(d16, static_cast<int16_t>(0xbfff)));
    return hn::PromoteTo(d, hn::BitCast(half, bits));
  }
};

// Whether one of `count` rows of E4M3 holds a NaN, that is a code whose seven lower bits are ones. The lanes
// of d divide head_dim.
template <class D>
bool holds_nan(D d, const std::byte* const* rows, int count, int head_dim) {
  const auto sign = hn::Set(d, 0x80);
  auto top = sign;
  for (int j = 0; j < count; ++j) {
    for (int i = 0; i < head_dim; i += static_cast<int>(hn::Lanes(d)))
      top = hn::Max(top, hn::Or(hn::LoadU(d, reinterpret_cast<const uint8_t*>(rows[j]) + i), sign));
  }
  return !hn::AllFalse(d, hn::Eq(top, hn::Set(d, 0xff)));
}

inline bool holds_nan(const std::byte* const* rows, int count, int head_dim) {
  const hn::CappedTag<uint8_t, 64> wide;
  const hn::CappedTag<uint8_t, 8> narrow;  // divides every head_dim
  const bool fits = head_dim % static_cast<int>(hn::Lanes(wide)) == 0;
  return fits ? holds_nan(wide, rows, count, head_dim) : holds_nan(narrow, rows, count, head_dim);
}

inline bool is_float(Format f) { return f <= Format::kFp8E5M2; }

// `decoded`: the rows have been decoded to f32.
template <class Call>
HWY_INLINE void with_load(Format format, bool decoded, Call call) {
  if (decoded || format == Format::kF32) return call(LoadF32());
  if (format == Format::kF16) return call(LoadF16());
  if (format == Format::kBf16) return call(LoadBf16());
  if (format == Format::kFp8E4M3) return call(LoadE4M3());
  call(LoadE5M2());
}

// What a row's loaded elements must be multiplied by; null where that is 1.
inline const float* float_row_scales(const TileSide& side, Format format, int first, int count, float* out) {
  if (format != Format::kFp8E4M3 && format != Format::kFp8E5M2) return nullptr;
  const float moved = format == Format::kFp8E4M3 ? 256.0f : 1.0f;
  for (int i = 0; i < count; ++i) {
    float scale;
    std::memcpy(&scale, side.meta[first + i], sizeof scale);
    out[i] = scale * moved;
  }
  return out;
}

// Register blocks that `queries` queries are worked on in.
inline int query_blocks(int queries) { return queries / 4 + queries % 4 / 2 + queries % 2; }

// ---- scores ----

// Up to 4 queries against 4 keys -> scores [kQueries, 4], rows kScoreStride apart.
template <int kQueries, class D, class Load>
HWY_INLINE void score_block(D d, Load load, const std::byte* const* k, const float* q, int head_dim,
                            Ahead& ahead, float* scores) {
  using V = hn::Vec<D>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  V acc[kQueries][kKeys];
  for (auto& row : acc) {
    for (V& x : row) x = hn::Zero(d);
  }
  for (int i = 0; i < head_dim; i += lanes) {
    V key[kKeys];
    ahead.step();
    for (int j = 0; j < kKeys; ++j) key[j] = load(d, k[j], i);
    for (int r = 0; r < kQueries; ++r) {
      const V query = hn::LoadU(d, q + r * head_dim + i);
      for (int j = 0; j < kKeys; ++j) acc[r][j] = hn::MulAdd(key[j], query, acc[r][j]);
    }
  }
  const hn::CappedTag<float, 4> four;
  for (int r = 0; r < kQueries; ++r)
    hn::StoreU(fold(d, acc[r][0], acc[r][1], acc[r][2], acc[r][3]), four, scores + r * kScoreStride);
}

// `keys` [count], padded to a multiple of kKeys with any readable rows -> scores [queries, kScoreStride], of
// which the padding's columns are garbage.
template <class D, class Load>
void score_floats(D d, Load load, const std::byte* const* keys, int count, const AttentionTask& task,
                  int head_dim, Ahead& shared, float* scores) {
  Ahead ahead = shared;  // a local one can live in registers
  const float* q = task.query(0, head_dim);
  const int queries = static_cast<int>(task.queries), lanes = static_cast<int>(hn::Lanes(d));
  ahead.begin_part(int64_t{(count + kKeys - 1) / kKeys} * (head_dim / lanes) * query_blocks(queries));
  for (int j = 0; j < count; j += kKeys) {
    int r = 0;
    for (; r + 4 <= queries; r += 4)
      score_block<4>(d, load, keys + j, q + r * head_dim, head_dim, ahead, scores + r * kScoreStride + j);
    for (; r + 2 <= queries; r += 2)
      score_block<2>(d, load, keys + j, q + r * head_dim, head_dim, ahead, scores + r * kScoreStride + j);
    for (; r < queries; ++r)
      score_block<1>(d, load, keys + j, q + r * head_dim, head_dim, ahead, scores + r * kScoreStride + j);
  }
  shared = ahead;
}

// ---- values ----

template <int kQueries, int kVectors, class D, class Load>
HWY_INLINE void value_block(D d, Load load, const std::byte* const* v, int rows, const float* p, int at,
                            int head_dim, Ahead& ahead, float* sum) {
  using V = hn::Vec<D>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  V acc[kQueries][kVectors];
  for (int r = 0; r < kQueries; ++r) {
    for (int x = 0; x < kVectors; ++x) acc[r][x] = hn::LoadU(d, sum + r * head_dim + at + x * lanes);
  }
  for (int j = 0; j < rows; ++j) {
    ahead.step();
    V value[kVectors];
    for (int x = 0; x < kVectors; ++x) value[x] = load(d, v[j], at + x * lanes);
    for (int r = 0; r < kQueries; ++r) {
      const V weight = hn::Set(d, p[r * kScoreStride + j]);
      for (int x = 0; x < kVectors; ++x) acc[r][x] = hn::MulAdd(weight, value[x], acc[r][x]);
    }
  }
  for (int r = 0; r < kQueries; ++r) {
    for (int x = 0; x < kVectors; ++x) hn::StoreU(acc[r][x], d, sum + r * head_dim + at + x * lanes);
  }
}

template <int kQueries, class D, class Load>
void value_rows(D d, Load load, const std::byte* const* v, int rows, const float* p, int head_dim,
                Ahead& ahead, float* sum) {
  const int lanes = static_cast<int>(hn::Lanes(d));
  int at = 0;
  for (; at + 4 * lanes <= head_dim; at += 4 * lanes)
    value_block<kQueries, 4>(d, load, v, rows, p, at, head_dim, ahead, sum);
  for (; at < head_dim; at += lanes) value_block<kQueries, 1>(d, load, v, rows, p, at, head_dim, ahead, sum);
}

// `v` [count] rows under weights p [queries, kScoreStride], added to the task's sums. A few rows at a time,
// so that they are read about in their order.
template <class D, class Load>
void add_floats(D d, Load load, const std::byte* const* v, int count, const float* p,
                const AttentionTask& task, int head_dim, Ahead& shared) {
  constexpr int kRows = 16;
  Ahead ahead = shared;
  const int queries = static_cast<int>(task.queries), lanes = static_cast<int>(hn::Lanes(d));
  const int passes = head_dim / lanes / 4 + head_dim / lanes % 4;
  ahead.begin_part(int64_t{count} * passes * query_blocks(queries));
  for (int j = 0; j < count; j += kRows, v += kRows, p += kRows) {
    const int rows = std::min(kRows, count - j);
    int r = 0;
    for (; r + 4 <= queries; r += 4)
      value_rows<4>(d, load, v, rows, p + r * kScoreStride, head_dim, ahead, task.sum + r * head_dim);
    for (; r + 2 <= queries; r += 2)
      value_rows<2>(d, load, v, rows, p + r * kScoreStride, head_dim, ahead, task.sum + r * head_dim);
    for (; r < queries; ++r)
      value_rows<1>(d, load, v, rows, p + r * kScoreStride, head_dim, ahead, task.sum + r * head_dim);
  }
  shared = ahead;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
