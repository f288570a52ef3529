// Scores of rows of integer codes, as exact sums of products: see attention_codes-inl.h. Private to
// kernels/cpu; compiled once a target.
#if defined(KV_CODES_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_CODES_SCORES_INL_H_
#undef KV_CODES_SCORES_INL_H_
#else
#define KV_CODES_SCORES_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/codes-inl.h"
#include "kernels/cpu/codes_scales-inl.h"
#include "kernels/cpu/fold-inl.h"
#include "kernels/cpu/tile.h"

KV_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- queries ----

struct CodedQueries {
  // From query to query, in q and in start: fixed, so that a loop over words moves one pointer for all.
  static constexpr int kStride = kMaxHeadDim, kStartStride = kMaxHeadDim / 4;
  HWY_ALIGN int16_t q[kQueryBlock * kStride];  // codes in the layout's order
  // [queries, words]: -middle times the sum of a lane's q.
  HWY_ALIGN int32_t start[kQueryBlock * kStartStride];
  float step[kQueryBlock];         // an element is about step * q
  int32_t start_sum[kQueryBlock];  // -middle times the sum of all its q
  float offset[kQueryBlock];       // what zero points add to each score; kToken: the sum of the query
};

// The largest code of a query for which no sum of products can overflow. In floats, since a unit of kChannel
// asks anew and a division of 64-bit integers is slow.
inline float largest_query_code(int bits, int head_dim) {
  constexpr float kLargestSum = 2147480000.0f;  // below 2^31 by more than the division's rounding can matter
  const auto terms = static_cast<float>(head_dim * ((1 << bits) - 1));
  return std::min(std::floor(kLargestSum / terms), static_cast<float>(INT16_MAX));
}

// Query r's elements x [head_dim], of magnitudes up to `largest` -> its codes, of a layout with blocks:
// [vectors of words, planes, lanes].
template <class Layout, class DI>
void code_query(DI di, const float* x, float largest, int head_dim, int r, CodedQueries& out) {
  const hn::RebindToFloat<decltype(di)> df;
  const hn::RepartitionToNarrow<decltype(di)> d16;
  const int lanes = static_cast<int>(hn::Lanes(di));
  const int words = head_dim * Layout::kBits / 32;
  const float top = largest_query_code(Layout::kBits, head_dim);
  const float inverse = largest > 0.0f ? top / largest : 0.0f;
  out.step[r] = largest / top;
  HWY_ALIGN float ordered[kMaxHeadDim];  // [slots, words]
  for (int slot = 0; slot < 32 / Layout::kBits; ++slot) {
    for (int w = 0; w < words; ++w) ordered[slot * words + w] = x[Layout::element(slot, w, words)];
  }
  const auto scale = hn::Set(df, inverse);
  auto* q = reinterpret_cast<int32_t*>(out.q + r * CodedQueries::kStride);
  for (int w = 0; w < words; w += lanes) {
    auto sum = hn::Zero(di);
    for (int p = 0; p < kPlanes<Layout>; ++p) {
      const auto low = rounded_bits(df, hn::LoadU(df, ordered + p * words + w), scale);
      const auto high = rounded_bits(df, hn::LoadU(df, ordered + (p + kPlanes<Layout>)*words + w), scale);
      const auto pair = pair_up(di, low, high);
      hn::StoreU(pair, di, q);
      q += lanes;
      sum = add_products(di, hn::BitCast(d16, pair), hn::Set(d16, 1), sum);
    }
    const auto start = hn::Mul(sum, hn::Set(di, -kMiddle<Layout>));
    hn::StoreU(start, di, out.start + r * CodedQueries::kStartStride + w);
  }
}

// ---- sums ----

// Planes kFirst … kFirst + kCount - 1 of four vectors of rows.
template <class Layout, int kFirst, int kCount, class D16>
HWY_INLINE void unpack(D16 d, const hn::Vec<D16> (&words)[4], hn::Vec<D16> (*planes)[4]) {
  const auto one = [&](auto index) KV_INLINE {
    constexpr int kPlane = decltype(index)::value;
    for (int i = 0; i < 4; ++i) planes[kPlane][i] = plane<Layout::kBits, kFirst + kPlane>(d, words[i]);
  };
  [&]<int... kPlane>(std::integer_sequence<int, kPlane...>) KV_INLINE {
    (one(std::integral_constant<int, kPlane>()), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

// acc[i] += the products of kCount planes of vector i and of a query, whose codes for them are at q.
template <int kCount, class DI, class D16>
HWY_INLINE void add_planes(DI di, D16 d16, const hn::Vec<D16> (*planes)[4], const int16_t* q,
                           hn::Vec<DI> (&acc)[4]) {
  for (int p = 0; p < kCount; ++p) {
    const auto query = hn::LoadU(d16, q + p * static_cast<int>(hn::Lanes(d16)));
    for (int i = 0; i < 4; ++i) acc[i] = add_products(di, planes[p][i], query, acc[i]);
  }
}

// The scales of rows j … j + 3 for the words from `word` on, as the sums of those words lie after
// fold_four().
template <class Layout, class DF>
HWY_INLINE hn::Vec<DF> folded_scales(DF df, const BlockScales& scales, int j, int word) {
  constexpr int kShift = Layout::kWordsPerBlock == 8 ? 3 : 2;
  const hn::RebindToSigned<DF> di;
  const auto lane = hn::Iota(di, 0);
  const auto block = hn::And(hn::ShiftRight<kShift>(hn::Add(lane, hn::Set(di, word))), hn::Set(di, 3));
  const auto index = hn::Add(hn::ShiftLeft<2>(hn::And(lane, hn::Set(di, 3))), block);
  const float* rows = scales.group(word / Layout::kWordsPerBlock / 4) + j * 4;
  if constexpr (hn::MaxLanes(DF()) == 16) {
    return hn::TableLookupLanes(hn::Load(df, rows), hn::IndicesFromVec(df, index));
  } else {
    return hn::GatherIndex(df, rows, index);
  }
}

// The same where scales differ from block to block -> scores in steps of each query.
template <class Layout, class DI>
HWY_NOINLINE void score_blocks(DI di, const std::byte* const* keys, int count, const BlockScales& scales,
                               const CodedQueries& coded, int queries, int vectors, Ahead& shared_ahead,
                               float* scores) {
  constexpr int kCount = kPlanes<Layout>;
  const hn::RebindToFloat<DI> df;
  const hn::RepartitionToNarrow<DI> d16;
  const hn::CappedTag<float, 4> four;
  const int lanes = static_cast<int>(hn::Lanes(di));
  Ahead ahead = shared_ahead;
  HWY_ALIGN float open[kQueryBlock][hn::MaxLanes(df)];
  for (int j = 0; j < count; j += 4) {
    const int16_t* q = coded.q;
    for (int v = 0; v < vectors; ++v, q += kCount * 2 * lanes) {
      ahead.step();
      hn::Vec<decltype(d16)> words[4], planes[kCount][4];
      for (int i = 0; i < 4; ++i) words[i] = hn::BitCast(d16, load_words<Layout>(di, keys[j + i], v * lanes));
      unpack<Layout, 0, kCount>(d16, words, planes);
      const auto scale = folded_scales<Layout>(df, scales, j, v * lanes);
      for (int r = 0; r < queries; ++r) {
        const auto start = hn::LoadU(di, coded.start + r * CodedQueries::kStartStride + v * lanes);
        hn::Vec<DI> acc[4] = {start, start, start, start};
        add_planes<kCount>(di, d16, planes, q + r * CodedQueries::kStride, acc);
        const auto sums = hn::ConvertTo(df, fold_four(di, acc[0], acc[1], acc[2], acc[3]));
        const auto total = v == 0 ? hn::Mul(sums, scale) : hn::MulAdd(sums, scale, hn::Load(df, open[r]));
        if (v + 1 == vectors) {
          hn::StoreU(fold_blocks(df, total), four, scores + r * kScoreStride + j);
        } else {
          hn::Store(total, df, open[r]);
        }
      }
    }
  }
  shared_ahead = ahead;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
