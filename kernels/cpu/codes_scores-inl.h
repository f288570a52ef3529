// Scores of rows of codes in blocks, as exact sums of products: see attention_codes-inl.h. Private to
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
  int16_t* q;          // [queries], in the order that score_blocks() or sum_products() needs
  int32_t* start;      // [queries, words]: of block formats, -middle times the sum of four lanes' q
  float* step;         // [queries] an element is about step * q
  int32_t* start_sum;  // [queries] of dealt codes, -middle times the sum of all q
  float* offset;       // [queries] what zero points add to each score; kToken: the sum of the query
  std::optional<Encoding> coded_for;  // rows of which they are to meet
};

// Not initialised.
struct CodedQueriesRoom {
  static constexpr int kQueryRoom = 4 * CodedQueries::kStride;  // a block format has each code four times
  HWY_ALIGN int16_t q[kQueryBlock * kQueryRoom];
  HWY_ALIGN int32_t start[kQueryBlock * CodedQueries::kStartStride];
  float step[kQueryBlock];
  int32_t start_sum[kQueryBlock];
  float offset[kQueryBlock];

  CodedQueries from(int64_t query) {
    return {.q = q + query * kQueryRoom,
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

// From one query's codes to the next one's.
template <int kPack>
constexpr int query_stride(int head_dim) {
  return 4 * kPack * head_dim;
}

// Each lane of the 128-bit blocks of v in all four lanes of its block -> to [4, kPack, lanes], whose end it
// returns.
template <int kPack, class DI>
HWY_INLINE int32_t* store_spread(DI di, hn::Vec<DI> v, int32_t* to) {
  const hn::Vec<DI> spread[4] = {hn::Broadcast<0>(v), hn::Broadcast<1>(v), hn::Broadcast<2>(v),
                                 hn::Broadcast<3>(v)};
  for (const auto& x : spread) {
    for (int copy = 0; copy < kPack; ++copy, to += hn::Lanes(di)) hn::StoreU(x, di, to);
  }
  return to;
}

// The sum of each 128-bit block in all its lanes.
template <class DI>
HWY_INLINE hn::Vec<DI> add_in_blocks(DI /*di*/, hn::Vec<DI> v) {
  const auto pairs = hn::Add(v, hn::Shuffle2301(v));
  return hn::Add(pairs, hn::Shuffle1032(pairs));
}

// Query r's elements x [head_dim], of magnitudes up to `largest` -> its codes, of a layout with blocks.
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
  for (int slot = 0; slot < 32 / Layout::kBits; ++slot) {
    for (int w = 0; w < words; ++w) ordered[slot * words + w] = x[Layout::element(slot, w)];
  }
  const auto scale = hn::Set(df, inverse);
  auto* q = reinterpret_cast<int32_t*>(out.q + r * query_stride<kPack>(head_dim));
  int32_t* first = out.start + r * CodedQueries::kStartStride;
  for (int w = 0; w < words; w += lanes) {
    auto sum = hn::Zero(di);
    for (int p = 0; p < kPlanes<Layout>; ++p) {
      const auto low = rounded_bits(df, hn::LoadU(df, ordered + p * words + w), scale);
      const auto high = rounded_bits(df, hn::LoadU(df, ordered + (p + kPlanes<Layout>)*words + w), scale);
      const auto pair = pair_up(di, low, high);
      q = store_spread<kPack>(di, pair, q);
      sum = add_products(di, hn::BitCast(d16, pair), hn::Set(d16, 1), sum);
    }
    const auto start = hn::Mul(sum, hn::Set(di, -kMiddle<Layout>));
    for (int copy = 0; copy < kPack; ++copy, first += lanes) hn::StoreU(add_in_blocks(di, start), di, first);
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

// What lies in lane i of the 128-bit blocks is row i's -> its sum, row by row. With two rows in a vector,
// four rows have the lower half and four more the upper one.
template <int kPack, class D>
HWY_INLINE void store_rows(D d, hn::Vec<D> v, float* sums) {
  const hn::CappedTag<float, 4> bits;
  const auto store = [&](auto part, auto half, float* at)
                         KV_INLINE { hn::StoreU(hn::BitCast(bits, fold_blocks(part, half)), bits, at); };
  if constexpr (kPack == 1) {
    store(d, v, sums);
  } else {
    const hn::Half<D> half;
    store(half, hn::LowerHalf(half, v), sums);
    store(half, hn::UpperHalf(half, v), sums + 4);
  }
}

// Where the lanes of words of four rows, or of twice as many, find their scales in a group: lane i of each
// 128-bit block is row i's.
template <class Layout, int kPack, class DI>
HWY_INLINE hn::Vec<DI> scale_places(DI di, int together) {
  constexpr int kShift = Layout::kWordsPerBlock == 8 ? 3 : 2;
  const int row_lanes = static_cast<int>(hn::Lanes(di)) / kPack;
  const auto lane = hn::Iota(di, 0);
  const auto second = hn::VecFromMask(di, hn::Gt(lane, hn::Set(di, row_lanes - 1)));  // -1: of the second row
  const auto row = hn::Sub(hn::And(lane, hn::Set(di, 3)), hn::ShiftLeft<2>(second));
  const auto word = hn::Add(lane, hn::And(second, hn::Set(di, -row_lanes)));
  return hn::Add(hn::Mul(row, hn::Set(di, together)), hn::ShiftRight<kShift>(word));
}

// The numbers at those places.
template <class DF>
HWY_INLINE hn::Vec<DF> look_up(DF df, const float* from, hn::Vec<hn::RebindToSigned<DF>> places) {
  if constexpr (hn::MaxLanes(DF()) == 16) {
    return hn::TableLookupLanes(hn::LoadU(df, from), hn::IndicesFromVec(df, places));
  } else {
    return hn::GatherIndex(df, from, places);
  }
}

// Word i of the four in each 128-bit block of rows' words -> words[i], lane j of the block is row j's.
template <class D16>
HWY_INLINE void transpose_words(D16 d16, hn::Vec<D16> (&words)[4]) {
  const hn::RepartitionToWide<D16> di;
  const hn::RepartitionToWide<decltype(di)> d64;
  const auto interleave = [&](auto d, auto a, auto b, auto& low, auto& high) KV_INLINE {
    low = hn::BitCast(d16, hn::InterleaveLower(d, hn::BitCast(d, a), hn::BitCast(d, b)));
    high = hn::BitCast(d16, hn::InterleaveUpper(d, hn::BitCast(d, a), hn::BitCast(d, b)));
  };
  hn::Vec<D16> low[2], high[2];
  for (int i = 0; i < 2; ++i) interleave(di, words[2 * i], words[2 * i + 1], low[i], high[i]);
  interleave(d64, low[0], low[1], words[0], words[1]);
  interleave(d64, high[0], high[1], words[2], words[3]);
}

// All queries against keys whose scales differ from block to block -> scores, in steps of each query. Words
// of four rows change places first, so that one accumulator holds the sums of four rows over each 128-bit
// block, and no query needs a sum across lanes before the scales; its codes are spread over the rows' lanes
// for that. What is left of those sums is done at the end, where no products wait for it.
template <class Layout, int kPack, class DI>
HWY_NOINLINE void score_blocks(DI di, const std::byte* const* keys, int count, const BlockScales& scales,
                               const CodedQueries& coded, int queries, int vectors, Ahead& shared_ahead,
                               float* scores) {
  constexpr int kCount = kPlanes<Layout>;
  const hn::RebindToFloat<DI> df;
  const hn::RepartitionToNarrow<DI> d16;
  const int lanes = static_cast<int>(hn::Lanes(di));
  Ahead ahead = shared_ahead;
  const int stride = vectors * kCount * 8 * lanes;
  const auto places = scale_places<Layout, kPack>(di, scales.together);
  HWY_ALIGN float open[kQueryBlock][kTileRows / 4][hn::MaxLanes(df)];
  for (int j = 0; j < count; j += 4 * kPack) {
    const int16_t* q = coded.q;
    for (int v = 0; v < vectors; ++v, q += kCount * 8 * lanes) {
      ahead.step();
      hn::Vec<decltype(d16)> words[4], planes[kCount][4];
      for (int i = 0; i < 4; ++i)
        words[i] = hn::BitCast(d16, load_rows<Layout, kPack>(di, keys + j + i, 4, v * lanes));
      transpose_words(d16, words);
      unpack<Layout, 0, kCount>(d16, words, planes);
      const auto scale = look_up(df, scales.at(j, v * lanes / Layout::kWordsPerBlock), places);
      for (int r = 0; r < queries; ++r) {
        hn::Vec<DI> acc[2] = {hn::LoadU(di, coded.start + r * CodedQueries::kStartStride + v * lanes),
                              hn::Zero(di)};
        const int16_t* now = q + r * stride;
        for (int p = 0; p < kCount; ++p) {
          for (int i = 0; i < 4; ++i, now += 2 * lanes)
            acc[i % 2] = add_products(di, planes[p][i], hn::LoadU(d16, now), acc[i % 2]);
        }
        const auto sums = hn::ConvertTo(df, hn::Add(acc[0], acc[1]));
        float* at = open[r][j / (4 * kPack)];
        hn::Store(v == 0 ? hn::Mul(sums, scale) : hn::MulAdd(sums, scale, hn::Load(df, at)), df, at);
      }
    }
  }
  for (int r = 0; r < queries; ++r) {
    for (int j = 0; j < count; j += 4 * kPack)
      store_rows<kPack>(df, hn::Load(df, open[r][j / (4 * kPack)]), scores + r * kScoreStride + j);
  }
  shared_ahead = ahead;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
