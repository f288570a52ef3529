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
#include <optional>

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

// A task's queries, in memory that tasks share.
struct CodedQueries {
  // From query to query, in q and in start: fixed, so that a loop over words moves one pointer for all.
  static constexpr int kStride = kMaxHeadDim, kStartStride = kMaxHeadDim / 4;
  int16_t* q;      // [queries, vectors of words, planes, lanes]
  int32_t* start;  // [queries, words]: -middle times the sum of a lane's q.
  float* step;     // [queries] an element is about step * q
  int32_t* start_sum;
  float* offset;                      // what zero points add to each score; kToken: the sum of the query
  std::optional<Encoding> coded_for;  // rows of which they are to meet
};

// Not initialised.
struct CodedQueriesRoom {
  HWY_ALIGN int16_t q[kQueryBlock * CodedQueries::kStride];
  HWY_ALIGN int32_t start[kQueryBlock * CodedQueries::kStartStride];
  float step[kQueryBlock];
  int32_t start_sum[kQueryBlock];
  float offset[kQueryBlock];

  CodedQueries from(int64_t query) {
    return {.q = q + query * CodedQueries::kStride,
            .start = start + query * CodedQueries::kStartStride,
            .step = step + query,
            .start_sum = start_sum + query,
            .offset = offset + query,
            .coded_for = {}};
  }
};

// The largest code of a query for which no sum of products can overflow. In floats, since a unit of kChannel
// asks anew and a division of 64-bit integers is slow.
inline float largest_query_code(int bits, int head_dim) {
  constexpr float kLargestSum = 2147480000.0f;  // below 2^31 by more than the division's rounding can matter
  const auto terms = static_cast<float>(head_dim * ((1 << bits) - 1));
  return std::min(std::floor(kLargestSum / terms), static_cast<float>(INT16_MAX));
}

// Query r's elements x [head_dim], of magnitudes up to `largest` -> its codes, in the layout's order.
template <class Layout, int kPack, class DI>
void code_query(DI, const float* x, float largest, int head_dim, int r, CodedQueries& out) {
  const typename OneRow<DI, kPack>::Tag di;
  const hn::RebindToFloat<decltype(di)> df;
  const hn::RepartitionToNarrow<decltype(di)> d16;
  const int lanes = static_cast<int>(hn::Lanes(di));
  const int words = head_dim * Layout::kBits / 32;
  const float top = largest_query_code(Layout::kBits, head_dim);
  const float inverse = largest > 0.0f ? top / largest : 0.0f;
  out.step[r] = largest / top;
  HWY_ALIGN float ordered[kMaxHeadDim];  // [slots, words]
  if constexpr (Layout::kWordsPerBlock != 0) {
    for (int slot = 0; slot < 32 / Layout::kBits; ++slot) {
      for (int w = 0; w < words; ++w) ordered[slot * words + w] = x[Layout::element(slot, w, words)];
    }
    x = ordered;
  }
  const auto scale = hn::Set(df, inverse);
  auto* q = reinterpret_cast<int32_t*>(out.q + r * CodedQueries::kStride);
  auto all = hn::Zero(di);
  for (int w = 0; w < words; w += lanes) {
    auto sum = hn::Zero(di);
    for (int p = 0; p < kPlanes<Layout>; ++p) {
      const auto low = rounded_bits(df, hn::LoadU(df, x + p * words + w), scale);
      const auto high = rounded_bits(df, hn::LoadU(df, x + (p + kPlanes<Layout>)*words + w), scale);
      const auto pair = pair_up(di, low, high);
      for (int copy = 0; copy < kPack; ++copy, q += lanes) hn::StoreU(pair, di, q);
      sum = add_products(di, hn::BitCast(d16, pair), hn::Set(d16, 1), sum);
    }
    const auto start = hn::Mul(sum, hn::Set(di, -kMiddle<Layout>));
    if constexpr (Layout::kWordsPerBlock != 0)
      hn::StoreU(start, di, out.start + r * CodedQueries::kStartStride + w);
    all = hn::Add(all, start);
  }
  out.start_sum[r] = hn::GetLane(hn::SumOfLanes(di, all));
}

// ---- sums ----
//
// Four vectors of rows are unpacked once, to kUnpacked planes, for all queries. The sums across lanes of one
// query run beside the products of the next, which keeps both the multiplier and the shuffler busy.

constexpr int kUnpacked = 4;  // planes of four vectors of rows: half of 32 registers

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

// The sums of four vectors of kPack rows each, in the order of the rows.
template <int kPack, class DI>
HWY_INLINE void store_sums(DI di, const hn::Vec<DI> (&acc)[4], float* sums) {
  const hn::CappedTag<float, 4> bits;
  const auto folded = fold_four(di, acc[0], acc[1], acc[2], acc[3]);
  const auto store = [&](auto d, auto half, float* at)
                         KV_INLINE { hn::StoreU(hn::BitCast(bits, fold_blocks(d, half)), bits, at); };
  if constexpr (kPack == 1) {
    store(di, folded, sums);
  } else {
    const hn::Half<DI> half;
    store(half, hn::LowerHalf(half, folded), sums);
    store(half, hn::UpperHalf(half, folded), sums + 4);
  }
}

// Sums of lanes that wait for the rest of their rows.
struct OpenSums {
  HWY_ALIGN int32_t lane[kQueryBlock][4][hn::MaxLanes(hn::ScalableTag<int32_t>())];
};

// Planes kFirst … of kVectors vectors of words from `w` on, of four vectors of rows, against all queries.
// `begins` and `ends`: whether these are the first and the last words of the rows.
template <class Layout, int kPack, int kVectors, int kFirst, class DI>
HWY_INLINE void sum_words(DI di, const std::byte* const* keys, int w, const int16_t* q, int queries,
                          bool begins, bool ends, OpenSums& open, float* sums) {
  constexpr int kCount = std::min(kUnpacked, kPlanes<Layout>);
  const hn::RepartitionToNarrow<DI> d16;
  const int lanes = static_cast<int>(hn::Lanes(di));
  hn::Vec<decltype(d16)> planes[kVectors * kCount][4];
  for (int v = 0; v < kVectors; ++v) {
    hn::Vec<decltype(d16)> words[4];
    for (int i = 0; i < 4; ++i)
      words[i] = hn::BitCast(d16, load_rows<Layout, kPack>(di, keys + i, 4, w + v * lanes));
    unpack<Layout, kFirst, kCount>(d16, words, planes + v * kCount);
  }
  for (int r = 0; r < queries; ++r, q += CodedQueries::kStride, sums += kScoreStride) {
    hn::Vec<DI> acc[4];
    for (int i = 0; i < 4; ++i) acc[i] = begins ? hn::Zero(di) : hn::Load(di, open.lane[r][i]);
    add_planes<kVectors * kCount>(di, d16, planes, q, acc);
    if (ends) {
      store_sums<kPack>(di, acc, sums);
    } else {
      for (int i = 0; i < 4; ++i) hn::Store(acc[i], di, open.lane[r][i]);
    }
  }
}

// All queries against keys -> their sums of products, as integers, kScoreStride apart from query to query.
// Looks at whole blocks of keys.
template <class Layout, int kPack, int kVectors, class DI>
HWY_NOINLINE void sum_keys(DI di, const std::byte* const* keys, int count, const CodedQueries& coded,
                           int queries, int vectors, Ahead& shared_ahead, float* sums) {
  constexpr int kCount = std::min(kUnpacked, kPlanes<Layout>), kParts = kPlanes<Layout> / kCount;
  const int lanes = static_cast<int>(hn::Lanes(di));
  Ahead ahead = shared_ahead;  // a local one can live in registers
  OpenSums open;
  for (int j = 0; j < count; j += 4 * kPack, keys += 4 * kPack, sums += 4 * kPack) {
    const int16_t* q = coded.q;
    for (int v = 0; v < vectors; v += kVectors) {
      ahead.step();
      const bool begins = v == 0, ends = v + kVectors == vectors;
      const auto part = [&](auto index) KV_INLINE {
        constexpr int kPart = decltype(index)::value;
        sum_words<Layout, kPack, kVectors, kPart * kCount>(
            di, keys, v * lanes, q, queries, begins && kPart == 0, ends && kPart == kParts - 1, open, sums);
        q += kVectors * kCount * 2 * lanes;
      };
      part(std::integral_constant<int, 0>());
      if constexpr (kParts == 2) part(std::integral_constant<int, 1>());
    }
  }
  shared_ahead = ahead;
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
