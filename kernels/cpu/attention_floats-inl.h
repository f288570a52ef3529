// Scores and weighted values of rows whose elements are floats: f32, f16, bf16, fp8. Elements are widened in
// registers; FP8's row scale is left out of them and goes into the score, or into the weight.
//
// Elements of less than 32 bits are dealt out: a vector of 32-bit words of a row becomes several vectors of
// f32, the first with the elements that stand lowest in each word, and so on. That takes shifts and masks
// alone, since no element changes its lane, but leaves a row's elements in an order of its own. Queries are
// brought into that order before, and sums out of it afterwards, once a task each.
//
// Private to kernels/cpu; compiled once a target.
#if defined(KV_ATTENTION_FLOATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_ATTENTION_FLOATS_INL_H_
#undef KV_ATTENTION_FLOATS_INL_H_
#else
#define KV_ATTENTION_FLOATS_INL_H_
#endif

#include <algorithm>
#include <optional>
#include <type_traits>

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/fold-inl.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/tile.h"
#include "kernels/formats.h"
#include "kernels/math.h"

KV_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kKeys = 4;  // keys of a register block

// Bytes of a row from which on one query meets keys one by one: memory delivers them faster in their order.
// Shorter rows take longer so, as they wait for their sums.
constexpr int kLongRow = 512;

// ---- loads ----
//
// Each makes of a row's elements of kBytes from i on, i a multiple of kVectors * lanes, kVectors vectors of
// f32. Vector p's lane l is element i + l * kVectors + p, divided by kFactor.

struct LoadF32 {
  static constexpr int kVectors = 1;
  static constexpr int kBytes = 4;
  static constexpr float kFactor = 1.0f;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    out[0] = hn::LoadU(d, reinterpret_cast<const float*>(row) + i);
  }
};

// The hardware's conversion is no slower than shifts and masks would be, and knows infinity and NaN.
struct LoadF16 {
  static constexpr int kVectors = 1;
  static constexpr int kBytes = 2;
  static constexpr float kFactor = 1.0f;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    const hn::Rebind<uint16_t, D> d16;
    out[0] = widen_half(d, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(row) + i));
  }
};

struct LoadBf16 {
  static constexpr int kVectors = 1;
  static constexpr int kBytes = 2;
  static constexpr float kFactor = 1.0f;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    const hn::Rebind<hwy::bfloat16_t, D> d16;
    out[0] = hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(row) + i));
  }
};
struct DealBf16 {
  static constexpr int kVectors = 2;
  static constexpr int kBytes = 2;
  static constexpr float kFactor = 1.0f;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    const hn::RebindToSigned<D> di;
    const auto words = hn::LoadU(di, reinterpret_cast<const int32_t*>(row + 2 * i));
    out[0] = hn::BitCast(d, hn::ShiftLeft<16>(words));
    out[1] = hn::BitCast(d, hn::And(words, hn::Set(di, static_cast<int32_t>(0xffff0000u))));
  }
};

// FP8's sign, exponent and mantissa in the places of f32's are the number divided by 2^120, or by 2^112 for
// E5M2. That holds for subnormals too, which become f32's.
template <Fp8 F>
struct Fp8InF32 {
  static constexpr float kFactor = F.mantissa_bits == 3 ? 0x1p120f : 0x1p112f;
  static constexpr int32_t kMask = static_cast<int32_t>(0x80000000u | 0x7fu << (23 - F.mantissa_bits));
};
template <Fp8 F>
struct LoadFp8 {
  static constexpr int kVectors = 1;
  static constexpr int kBytes = 1;
  static constexpr float kFactor = Fp8InF32<F>::kFactor;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<int8_t, D> d8;
    const auto codes = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const int8_t*>(row) + i));
    const auto placed = hn::ShiftLeft<23 - F.mantissa_bits>(codes);
    out[0] = hn::BitCast(d, hn::And(placed, hn::Set(di, Fp8InF32<F>::kMask)));
  }
};
template <Fp8 F>
struct DealFp8 {
  static constexpr int kVectors = 4;
  static constexpr int kBytes = 1;
  static constexpr float kFactor = Fp8InF32<F>::kFactor;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    const hn::RebindToSigned<D> di;
    const hn::Repartition<int16_t, D> d16;
    constexpr int kShift = 1 + F.mantissa_bits;
    const auto mask = hn::Set(di, Fp8InF32<F>::kMask);
    const auto codes = hn::LoadU(d16, reinterpret_cast<const int16_t*>(row + i));
    const auto even = hn::BitCast(di, hn::ShiftRight<kShift>(hn::ShiftLeft<8>(codes)));
    const auto odd = hn::BitCast(di, hn::ShiftRight<kShift>(codes));
    out[0] = hn::BitCast(d, hn::And(hn::ShiftLeft<16>(even), mask));
    out[1] = hn::BitCast(d, hn::And(hn::ShiftLeft<16>(odd), mask));
    out[2] = hn::BitCast(d, hn::And(even, mask));
    out[3] = hn::BitCast(d, hn::And(odd, mask));
  }
};

inline bool is_float(Format f) { return f <= Format::kFp8E5M2; }

inline bool is_fp8(Format f) { return f == Format::kFp8E4M3 || f == Format::kFp8E5M2; }

// `decoded`: the rows have been decoded to f32.
template <class D, class Call>
HWY_INLINE void with_load(D d, Format format, bool decoded, int head_dim, Call call) {
  const int vectors = head_dim / static_cast<int>(hn::Lanes(d));
  if (decoded || format == Format::kF32) return call(LoadF32());
  if (format == Format::kF16) return call(LoadF16());
  if (format == Format::kBf16) return vectors % 2 ? call(LoadBf16()) : call(DealBf16());
  if (format == Format::kFp8E4M3) return vectors % 4 ? call(LoadFp8<kE4M3>()) : call(DealFp8<kE4M3>());
  return vectors % 4 ? call(LoadFp8<kE5M2>()) : call(DealFp8<kE5M2>());
}

// Whether one of FP8 rows' scales [count], times a load's factor, makes a weight that no f32 holds.
inline bool exceeds_weights(const float* row_scale, int count) {
  int many = 0;
  for (int j = 0; j < count; ++j) many += row_scale[j] > 0x1p7f;
  return many > 0;
}

// x [count] times what was left out of FP8 rows: a factor, and each row's scale.
inline void restore_rows(float factor, const float* row_scale, int count, float* x) {
  for (int j = 0; j < count; ++j) x[j] = x[j] * factor * row_scale[j];
}

// ---- the order of a load ----

template <int kVectors, class D>
HWY_INLINE void load_dealt(D d, const float* x, hn::Vec<D>* out) {
  if constexpr (kVectors == 1) out[0] = hn::LoadU(d, x);
  if constexpr (kVectors == 2) hn::LoadInterleaved2(d, x, out[0], out[1]);
  if constexpr (kVectors == 4) hn::LoadInterleaved4(d, x, out[0], out[1], out[2], out[3]);
}

// x [n] into the order of kVectors vectors, or back from it.
template <int kVectors, class D>
void deal(D d, float* x, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += kVectors * lanes) {
    hn::Vec<D> v[kVectors];
    load_dealt<kVectors>(d, x + i, v);
    for (int p = 0; p < kVectors; ++p) hn::StoreU(v[p], d, x + i + p * lanes);
  }
}
template <int kVectors, class D>
void undeal(D d, float* x, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += kVectors * lanes) {
    hn::Vec<D> v[kVectors];
    for (int p = 0; p < kVectors; ++p) v[p] = hn::LoadU(d, x + i + p * lanes);
    if constexpr (kVectors == 2) hn::StoreInterleaved2(v[0], v[1], d, x + i);
    if constexpr (kVectors == 4) hn::StoreInterleaved4(v[0], v[1], v[2], v[3], d, x + i);
  }
}

// ---- scores ----

// Queries as score_block() reads them: for each block, [vector, query, lane] in the order of the load. Where
// rows are loaded small, queries are made large, so that no product is subnormal; `restore` undoes both.
// A task's, in memory that tasks share.
struct PackedQueries {
  float* q;
  float* restore;
  std::optional<Format> packed_for;  // rows of which they are to meet
};

// Not initialised.
struct PackedQueriesRoom {
  HWY_ALIGN float q[kQueryBlock * kMaxHeadDim];
  float restore[kQueryBlock];

  PackedQueries from(int64_t query, int head_dim) { return {q + query * head_dim, restore + query, {}}; }
};

// One of a block's queries -> where its vectors belong in the block, which has kQueries of each.
template <int kQueries, class Load, class D>
HWY_INLINE float pack_query(D d, Load, const float* q, int head_dim, float* packed) {
  using V = hn::Vec<D>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  float lift = 1.0f;
  if (Load::kFactor != 1.0f) {
    V top = hn::Zero(d);
    for (int i = 0; i < head_dim; i += lanes) top = hn::Max(top, hn::Abs(hn::LoadU(d, q + i)));
    const float largest = hn::GetLane(hn::MaxOfLanes(d, top));
    lift = largest < 0x1p-40f ? 0x1p120f : largest < 0x1p60f ? 0x1p60f : 1.0f;
  }
  for (int i = 0; i < head_dim; i += Load::kVectors * lanes) {
    V x[Load::kVectors];
    load_dealt<Load::kVectors>(d, q + i, x);
    for (const V& v : x) {
      hn::Store(hn::Mul(v, hn::Set(d, lift)), d, packed);
      packed += kQueries * lanes;
    }
  }
  return Load::kFactor / lift;
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
                            Ahead& ahead, float* scores) {
  using V = hn::Vec<D>;
  constexpr int kVectors = Load::kVectors;
  constexpr int kTogether = kVectors > 2 ? 2 : kKeys;  // keys whose vectors registers have room for
  const int lanes = static_cast<int>(hn::Lanes(d));
  V acc[kQueries][kKeys];
  for (auto& row : acc) {
    for (V& x : row) x = hn::Zero(d);
  }
  for (int i = 0; i < head_dim; i += kVectors * lanes, q += kVectors * kQueries * lanes) {
    ahead.step();
    for (int j = 0; j < kKeys; j += kTogether) {
      V key[kTogether][kVectors];
      for (int t = 0; t < kTogether; ++t) load(d, k[j + t], i, key[t]);
      for (int x = 0; x < kVectors; ++x) {
        for (int r = 0; r < kQueries; ++r) {
          const V query = hn::Load(d, q + (x * kQueries + r) * lanes);
          for (int t = 0; t < kTogether; ++t) acc[r][j + t] = hn::MulAdd(key[t][x], query, acc[r][j + t]);
        }
      }
    }
  }
  const hn::CappedTag<float, 4> four;
  for (int r = 0; r < kQueries; ++r)
    hn::StoreU(fold(d, acc[r][0], acc[r][1], acc[r][2], acc[r][3]), four, scores + r * kScoreStride);
}

// One packed query against 4 keys, each from end to end -> scores [4], the same bits as score_block()'s.
template <class D, class Load>
HWY_INLINE void score_in_order(D d, Load load, const std::byte* const* k, const float* q, int head_dim,
                               Ahead& ahead, float* scores) {
  using V = hn::Vec<D>;
  constexpr int kVectors = Load::kVectors;
  const int lanes = static_cast<int>(hn::Lanes(d));
  V acc[kKeys];
  for (int j = 0; j < kKeys; ++j) {
    acc[j] = hn::Zero(d);
    for (int i = 0; i < head_dim; i += kVectors * lanes) {
      if (j == 0) ahead.step();
      V key[kVectors];
      load(d, k[j], i, key);
      for (int x = 0; x < kVectors; ++x) acc[j] = hn::MulAdd(key[x], hn::Load(d, q + i + x * lanes), acc[j]);
    }
  }
  hn::StoreU(fold(d, acc[0], acc[1], acc[2], acc[3]), hn::CappedTag<float, 4>(), scores);
}

// `keys` [count], padded to a multiple of kKeys with any readable rows -> scores [queries, kScoreStride], of
// which the padding's columns are garbage.
template <class D, class Load>
void score_floats(D d, Load load, const std::byte* const* keys, int count, const float* packed_queries,
                  int queries, int head_dim, Ahead& shared, float* scores) {
  Ahead ahead = shared;  // a local one can live in registers
  const int steps = head_dim / (Load::kVectors * static_cast<int>(hn::Lanes(d)));
  ahead.begin_part(int64_t{(count + kKeys - 1) / kKeys} * steps * query_blocks(queries));
  if (queries == 1 && head_dim * Load::kBytes >= kLongRow) {
    for (int j = 0; j < count; j += kKeys)
      score_in_order(d, load, keys + j, packed_queries, head_dim, ahead, scores + j);
    shared = ahead;
    return;
  }
  for (int j = 0; j < count; j += kKeys) {
    for_query_blocks(queries, [&](auto some, int r) KV_INLINE {
      score_block<decltype(some)::value>(d, load, keys + j, packed_queries + r * head_dim, head_dim, ahead,
                                         scores + r * kScoreStride + j);
    });
  }
  shared = ahead;
}

// ---- values ----

// Elements [at, at + kVectors * lanes) of the sums, in the order of the load.
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
    for (int x = 0; x < kVectors; x += Load::kVectors) load(d, v[j], at + x * lanes, value + x);
    for (int r = 0; r < kQueries; ++r) {
      const V weight = hn::Set(d, p[r * kScoreStride + j]);
      for (int x = 0; x < kVectors; ++x) acc[r][x] = hn::MulAdd(weight, value[x], acc[r][x]);
    }
  }
  for (int r = 0; r < kQueries; ++r) {
    for (int x = 0; x < kVectors; ++x) hn::StoreU(acc[r][x], d, sum + r * head_dim + at + x * lanes);
  }
}

// Vectors of a row that kQueries queries' weights meet at once. One query's are as many as there are
// registers for, so that long rows are read from end to end.
template <int kQueries, class D>
constexpr int kVectorsAtOnce = kQueries == 1 ? kSumsAtOnce<D> : 4;

template <int kQueries, class D, class Load>
void value_rows(D d, Load load, const std::byte* const* v, int rows, const float* p, int head_dim,
                Ahead& ahead, float* sum) {
  constexpr int kVectors = Load::kVectors, kMost = kVectorsAtOnce<kQueries, D>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  int at = 0;
  for (; at + kMost * lanes <= head_dim; at += kMost * lanes)
    value_block<kQueries, kMost>(d, load, v, rows, p, at, head_dim, ahead, sum);
  for (; at + 4 * lanes <= head_dim; at += 4 * lanes)
    value_block<kQueries, 4>(d, load, v, rows, p, at, head_dim, ahead, sum);
  for (; at < head_dim; at += kVectors * lanes)
    value_block<kQueries, kVectors>(d, load, v, rows, p, at, head_dim, ahead, sum);
}

// How often that goes through the rows.
template <int kQueries, class D, class Load>
int value_passes(D d, Load, int head_dim) {
  constexpr int kMost = kVectorsAtOnce<kQueries, D>;
  const int vectors = head_dim / static_cast<int>(hn::Lanes(d));
  return vectors / kMost + vectors % kMost / 4 + vectors % 4 / Load::kVectors;
}

// `v` [count] rows under weights p [queries, kScoreStride], added to sums [queries, head_dim] in the order of
// the load. A few rows at a time, so that they are read about in their order.
template <class D, class Load>
void add_floats(D d, Load load, const std::byte* const* v, int count, const float* p, int queries,
                int head_dim, Ahead& shared, float* sum) {
  constexpr int kRows = 16;
  Ahead ahead = shared;
  int passes = 0;
  for_query_blocks(queries, [&](auto some, int) KV_INLINE {
    passes += value_passes<decltype(some)::value>(d, load, head_dim);
  });
  ahead.begin_part(int64_t{count} * passes);
  for (int j = 0; j < count; j += kRows, v += kRows, p += kRows) {
    const int rows = std::min(kRows, count - j);
    for_query_blocks(queries, [&](auto some, int r) KV_INLINE {
      value_rows<decltype(some)::value>(d, load, v, rows, p + r * kScoreStride, head_dim, ahead,
                                        sum + r * head_dim);
    });
  }
  shared = ahead;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
