// Scores and weighted sums of rows of dealt codes (bits.h), under a scale a row or a channel: see
// attention_codes-inl.h. Whatever a row's length, vectors are full: short rows share them. Private to
// kernels/cpu; compiled once a target.
#if defined(KV_CODES_DEALT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_CODES_DEALT_INL_H_
#undef KV_CODES_DEALT_INL_H_
#else
#define KV_CODES_DEALT_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/codes-inl.h"
#include "kernels/cpu/codes_scales-inl.h"
#include "kernels/cpu/codes_scores-inl.h"
#include "kernels/cpu/codes_values-inl.h"
#include "kernels/cpu/fold-inl.h"
#include "kernels/cpu/tile.h"

KV_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sums of each of kCount vectors.
template <int kCount, class DF>
HWY_INLINE void sums_of_lanes(DF df, const hn::Vec<DF> (&x)[kCount], float* sums) {
  if constexpr (kCount == 4) {
    hn::StoreU(fold(df, x[0], x[1], x[2], x[3]), hn::CappedTag<float, 4>(), sums);
  } else {
    for (int i = 0; i < kCount; ++i) sums[i] = hn::GetLane(hn::SumOfLanes(df, x[i]));
  }
}

// The largest lane of each of kCount vectors.
template <int kCount, class DF>
HWY_INLINE void largest_of_lanes(DF df, const hn::Vec<DF> (&x)[kCount], float* largest) {
  if constexpr (kCount == 4) {
    using V = hn::Vec<DF>;
    const auto of_blocks =
        join_four(df, x[0], x[1], x[2], x[3], [](V a, V b) HWY_ATTR { return hn::Max(a, b); });
    HWY_ALIGN float block[hn::MaxLanes(df)];
    hn::Store(of_blocks, df, block);
    const hn::CappedTag<float, 4> four;
    auto all = hn::Load(four, block);
    for (size_t i = 4; i < hn::Lanes(df); i += 4) all = hn::Max(all, hn::Load(four, block + i));
    hn::StoreU(all, four, largest);
  } else {
    for (int i = 0; i < kCount; ++i) largest[i] = hn::GetLane(hn::MaxOfLanes(df, x[i]));
  }
}

// ---- queries ----

// Query r's elements x [head_dim], of magnitudes up to `largest` -> its codes, [planes, words] pairs; their
// sums -> what is returned. The halves of a pair are half a row apart.
template <class Layout>
HWY_INLINE hn::Vec<hn::CappedTag<int32_t, 16>> code_dealt_query(const float* x, float largest, int head_dim,
                                                                int r, CodedQueries& out) {
  const hn::CappedTag<int32_t, 16> di;
  const hn::RebindToFloat<decltype(di)> df;
  const hn::RepartitionToNarrow<decltype(di)> d16;
  const int half = head_dim / 2;
  const float top = largest_query_code(Layout::kBits, head_dim);
  const auto scale = hn::Set(df, largest > 0.0f ? top / largest : 0.0f);
  auto* q = reinterpret_cast<int32_t*>(out.q + r * CodedQueries::kStride);
  auto sum = hn::Zero(di);
  for (int i = 0; i < half; i += static_cast<int>(hn::Lanes(di))) {
    const auto valid = hn::FirstN(df, static_cast<size_t>(half - i));
    const auto pair = pair_up(di, rounded_bits(df, hn::MaskedLoad(valid, df, x + i), scale),
                              rounded_bits(df, hn::MaskedLoad(valid, df, x + half + i), scale));
    hn::StoreU(pair, di, q + i);
    sum = add_products(di, hn::BitCast(d16, pair), hn::Set(d16, 1), sum);
  }
  out.step[r] = largest / top;
  return sum;
}

// kPack slots' sums of a pack -> their sums over its rows, in the order of slots and words.
template <int kPack, class DI>
HWY_INLINE hn::Vec<DI> join_pack(DI di, const hn::Vec<DI>* acc) {
  if constexpr (kPack == 1) {
    return acc[0];
  } else {
    const auto halves = [&](int a, int b) KV_INLINE {
      return hn::Add(hn::ConcatLowerLower(di, acc[b], acc[a]), hn::ConcatUpperUpper(di, acc[b], acc[a]));
    };
    if constexpr (kPack == 2) {
      return halves(0, 1);
    } else {
      const auto x = halves(0, 2), y = halves(1, 3);  // two blocks of each
      return hn::Add(hn::OddEvenBlocks(y, x), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(x, y)));
    }
  }
}

// ---- scores: rows side by side ----
//
// A vector holds the same 128 bits of as many rows as it has blocks of 128 bits, whatever a row's length, and
// meets those 128 bits of a query in all its blocks. Four such vectors are worked on together: the sums
// within their blocks come out in the order of the rows, with no sum across a whole vector.

// Rows that are scored together.
template <class DI>
constexpr int kRowsTogether = static_cast<int>(hn::MaxLanes(DI()));

template <class DI>
HWY_INLINE hn::Vec<DI> load_everywhere(DI di, const std::byte* at) {
  const hn::Repartition<uint8_t, DI> bytes;
  return hn::BitCast(di, hn::LoadDup128(bytes, reinterpret_cast<const uint8_t*>(at)));
}

// 128 bits at `offset` of rows 0, kStep, 2 * kStep, ..., one a block.
template <int kStep, class DI>
HWY_INLINE hn::Vec<DI> load_side_by_side(DI di, const std::byte* const* rows, int offset) {
  const auto first = load_everywhere(di, rows[0] + offset);
  if constexpr (hn::MaxLanes(DI()) == 4) {
    return first;
  } else if constexpr (hn::MaxLanes(DI()) == 8) {
    return hn::ConcatUpperLower(di, load_everywhere(di, rows[kStep] + offset), first);
  } else {
    const auto low = hn::OddEvenBlocks(load_everywhere(di, rows[kStep] + offset), first);
    const auto high = hn::OddEvenBlocks(load_everywhere(di, rows[3 * kStep] + offset),
                                        load_everywhere(di, rows[2 * kStep] + offset));
    return hn::ConcatUpperLower(di, high, low);
  }
}

// kRowsTogether rows of whole vectors against query r -> their sums of products. Four rows at a time, a whole
// vector of each: about in the order of memory, and no product waits for the one before it.
template <class Layout, class DI>
HWY_INLINE hn::Vec<DI> sum_products_in_order(DI di, const std::byte* const* keys, const CodedQueries& coded,
                                             int r, int words, Ahead& ahead) {
  const hn::RepartitionToNarrow<DI> d16;
  constexpr int kLanes = kRowsTogether<DI>;
  const int16_t* q = coded.q + r * CodedQueries::kStride;
  hn::Vec<DI> of_four[kLanes / 4];
  for (auto& sums : of_four) {
    hn::Vec<DI> acc[4];
    for (auto& x : acc) x = hn::Zero(di);
    for (int w = 0; w < words; w += kLanes) {
      ahead.step();
      for (int i = 0; i < 4; ++i) {
        const auto row = hn::BitCast(d16, hn::LoadU(di, reinterpret_cast<const int32_t*>(keys[i]) + w));
        const auto add_plane = [&](auto index) KV_INLINE {
          constexpr int kPlane = decltype(index)::value;
          const auto query = hn::LoadU(d16, q + 2 * (kPlane * words + w));
          acc[i] = add_products(di, plane<Layout::kBits, kPlane>(d16, row), query, acc[i]);
        };
        [&]<int... kPlane>(std::integer_sequence<int, kPlane...>) KV_INLINE {
          (add_plane(std::integral_constant<int, kPlane>()), ...);
        }
        (std::make_integer_sequence<int, kPlanes<Layout>>());
      }
    }
    sums = fold_four(di, acc[0], acc[1], acc[2], acc[3]);
    keys += 4;
  }
  return join_pack<kLanes / 4>(di, of_four);
}

// kRowsTogether rows against queries r … r + kQueries - 1 -> their sums of products.
template <class Layout, int kQueries, class DI>
HWY_INLINE void sum_products(DI di, const std::byte* const* keys, const CodedQueries& coded, int r, int words,
                             Ahead& ahead, hn::Vec<DI> (&sums)[kQueries]) {
  if constexpr (kQueries == 1) {
    if (words % kRowsTogether<DI> == 0) {
      sums[0] = sum_products_in_order<Layout>(di, keys, coded, r, words, ahead);
      return;
    }
  }
  const hn::RepartitionToNarrow<DI> d16;
  hn::Vec<DI> acc[kQueries][4];
  for (auto& query : acc) {
    for (auto& x : query) x = hn::Zero(di);
  }
  const auto* q = reinterpret_cast<const std::byte*>(coded.q + r * CodedQueries::kStride);
  const int64_t plane_bytes = int64_t{words} * 4;
  for (int w = 0; w < words; w += 4, q += 16) {
    ahead.step();
    hn::Vec<decltype(d16)> row[4];
    for (int i = 0; i < 4; ++i) row[i] = hn::BitCast(d16, load_side_by_side<4>(di, keys + i, 4 * w));
    const auto add_plane = [&](auto index) KV_INLINE {
      constexpr int kPlane = decltype(index)::value;
      hn::Vec<decltype(d16)> query[kQueries];
      for (int i = 0; i < kQueries; ++i)
        query[i] =
            hn::BitCast(d16, load_everywhere(di, q + kPlane * plane_bytes + i * CodedQueries::kStride * 2));
      for (int g = 0; g < 4; ++g) {
        const auto codes = plane<Layout::kBits, kPlane>(d16, row[g]);
        for (int i = 0; i < kQueries; ++i) acc[i][g] = add_products(di, codes, query[i], acc[i][g]);
      }
    };
    [&]<int... kPlane>(std::integer_sequence<int, kPlane...>) KV_INLINE {
      (add_plane(std::integral_constant<int, kPlane>()), ...);
    }
    (std::make_integer_sequence<int, kPlanes<Layout>>());
  }
  for (int i = 0; i < kQueries; ++i) sums[i] = fold_four(di, acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
}

// Scores of queries r … r + kQueries - 1 of `count` keys: finish(query, j, sums) of the sums of products of
// the rows from j on, as integers. Looks at whole steps of kRowsTogether.
template <class Layout, int kQueries, class Finish>
HWY_INLINE void score_rows(const std::byte* const* keys, int count, const CodedQueries& coded, int r,
                           int words, Ahead& shared_ahead, float* scores, Finish finish) {
  const hn::ScalableTag<int32_t> di;
  const hn::RebindToFloat<decltype(di)> df;
  Ahead ahead = shared_ahead;  // a local one can live in registers
  for (int j = 0; j < count; j += kRowsTogether<decltype(di)>) {
    hn::Vec<decltype(di)> sums[kQueries];
    sum_products<Layout, kQueries>(di, keys + j, coded, r, words, ahead, sums);
    for (int i = 0; i < kQueries; ++i)
      hn::StoreU(finish(r + i, j, sums[i]), df, scores + (r + i) * kScoreStride + j);
  }
  shared_ahead = ahead;
}

// ---- weights ----

// Weights of up to 4 queries as 16-bit codes, those of neighbouring rows in one 32-bit lane.
struct DealtWeights {
  static constexpr int kStride = kTileRows / 2;  // from a query's to the next one's
  HWY_ALIGN int32_t pair[4 * kStride];           // [queries, pairs]
  float step[4];                                 // a weight is about step * code
  float zero[4];                                 // what is to be added to each element
};

// Probabilities p [kQueries, count], kScoreStride apart, of rows with these scales -> out.
template <class Layout, int kQueries>
HWY_INLINE void code_dealt_weights(const float* p, const RowScales& scales, bool affine, int count,
                                   DealtWeights& out) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<uint16_t, decltype(df)> d16;
  const int lanes = static_cast<int>(hn::Lanes(df)), padded = whole_steps(count);
  HWY_ALIGN float weight[kQueries][kTileRows];
  hn::Vec<decltype(df)> top[kQueries], zero[kQueries];
  for (int r = 0; r < kQueries; ++r) top[r] = zero[r] = hn::Zero(df);
  for (int j = 0; j < padded; j += lanes) {
    const auto scale = hn::Load(df, scales.scale + j);
    for (int r = 0; r < kQueries; ++r) {
      const auto now = j + lanes <= count ? hn::LoadU(df, p + r * kScoreStride + j)
                                          : load_valid(df, p + r * kScoreStride, j, count);
      const auto product = hn::Mul(now, scale);
      hn::Store(product, df, weight[r] + j);
      top[r] = hn::Max(top[r], hn::Abs(product));
      if (affine) zero[r] = hn::MulAdd(now, hn::Load(df, scales.zero + j), zero[r]);
    }
  }
  float largest[kQueries];
  largest_of_lanes<kQueries>(df, top, largest);
  for (int r = 0; r < kQueries; ++r) {
    const auto inverse = hn::Set(df, largest[r] > 0.0f ? kLargestWeightCode / largest[r] : 0.0f);
    out.step[r] = largest[r] * (1.0f / kLargestWeightCode);
    auto* codes = reinterpret_cast<uint16_t*>(out.pair + r * DealtWeights::kStride);
    auto sum = hn::Zero(di);
    for (int j = 0; j < padded; j += lanes) {
      const auto code = rounded_bits(df, hn::Load(df, weight[r] + j), inverse);
      hn::StoreU(hn::TruncateTo(d16, hn::BitCast(hn::RebindToUnsigned<decltype(di)>(), code)), d16,
                 codes + j);
      sum = hn::Add(sum, code);
    }
    const auto added = hn::Mul(hn::Set(di, padded / lanes), hn::BitCast(di, hn::Set(df, kRoundingShift)));
    zero[r] = hn::MulAdd(hn::ConvertTo(df, hn::Sub(sum, added)),
                         hn::Set(df, static_cast<float>(-kMiddle<Layout>) * out.step[r]), zero[r]);
  }
  sums_of_lanes<kQueries>(df, zero, out.zero);
}

// ---- values ----

// Calls with vectors of words, and with the rows that a vector holds: 1, 2 or 4.
template <class Call>
HWY_INLINE void with_packs(int words, Call call) {
  const hn::ScalableTag<int32_t> full;
  constexpr size_t kLanes = hn::MaxLanes(full);
  if (words % static_cast<int>(kLanes) == 0) return call(full, std::integral_constant<int, 1>());
  if constexpr (kLanes >= 8) {
    if (words * 2 == kLanes) return call(full, std::integral_constant<int, 2>());
  }
  if constexpr (kLanes == 16) {
    if (words == 4) return call(full, std::integral_constant<int, 4>());
    if (words % 8 == 0) return call(hn::CappedTag<int32_t, 8>(), std::integral_constant<int, 1>());
  }
  call(hn::CappedTag<int32_t, 4>(), std::integral_constant<int, 1>());
}

// Words from `w` on of kPack rows: row[0], row[2], ...
template <int kPack, class DI>
HWY_INLINE hn::Vec<DI> load_pack(DI di, const std::byte* const* row, int w) {
  const auto load = [](auto d, const std::byte* at)
                        KV_INLINE { return hn::LoadU(d, reinterpret_cast<const int32_t*>(at)); };
  if constexpr (kPack == 1) {
    return load(di, row[0] + int64_t{w} * 4);
  } else if constexpr (kPack == 2) {
    const hn::Half<DI> half;
    return hn::Combine(di, load(half, row[2]), load(half, row[0]));
  } else {
    return load_side_by_side<2>(di, row, 0);
  }
}

// number[0] in the lanes of a pack's first row, number[1] in those of the second, ...
template <int kPack, class DI>
HWY_INLINE hn::Vec<DI> spread_over_pack(DI di, const int32_t* number) {
  if constexpr (kPack == 1) {
    return hn::Set(di, *number);
  } else if constexpr (kPack == 2) {
    return hn::ConcatUpperLower(di, hn::Set(di, number[1]), hn::Set(di, number[0]));
  } else {
    return hn::TableLookupLanes(hn::LoadDup128(di, number),
                                hn::IndicesFromVec(di, hn::ShiftRight<2>(hn::Iota(di, 0))));
  }
}

// Words of two rows, or packs of them, with halves joined: neighbouring 16-bit lanes are the same element of
// two rows, and meet those rows' two weights. `low` holds the first half of the slots, `high` the second.
template <class DI>
struct JoinedPair {
  hn::Vec<hn::RepartitionToNarrow<DI>> low, high;
};

template <int kPack, class DI>
HWY_INLINE JoinedPair<DI> load_pair(DI di, const std::byte* const* rows, int w) {
  const hn::RepartitionToNarrow<DI> d16;
  const hn::RebindToUnsigned<DI> du;
  const auto a = load_pack<kPack>(di, rows, w), b = load_pack<kPack>(di, rows + 1, w);
  return {hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(b)), hn::BitCast(d16, a)),
          hn::OddEven(hn::BitCast(d16, b), hn::BitCast(d16, hn::ShiftRight<16>(hn::BitCast(du, a))))};
}

// Slots kFirst … kFirst + kSlots - 1 of kWide vectors of all pairs of rows, load(i, x) the x-th from the i-th
// pair on, under the weights of kQueries queries -> acc [kQueries][kWide][kSlots]. Exact.
template <class Layout, int kPack, int kFirst, int kSlots, int kWide, int kQueries, class DI, class Load>
HWY_INLINE void sum_dealt_slots(DI di, int pairs, const DealtWeights& weights, Ahead& ahead,
                                hn::Vec<DI> (&acc)[kQueries][kWide][kSlots], Load load) {
  const hn::RepartitionToNarrow<DI> d16;
  for (auto& query : acc) {
    for (auto& vector : query) {
      for (auto& x : vector) x = hn::Zero(di);
    }
  }
  for (int i = 0; i < pairs; i += kPack) {
    ahead.step();
    hn::Vec<decltype(d16)> weight[kQueries];
    for (int r = 0; r < kQueries; ++r)
      weight[r] = hn::BitCast(d16, spread_over_pack<kPack>(di, weights.pair + r * DealtWeights::kStride + i));
    for (int x = 0; x < kWide; ++x) {
      const JoinedPair<DI> joined = load(i, x);
      const auto add_slot = [&](auto index) KV_INLINE {
        constexpr int kSlot = kFirst + decltype(index)::value, kPlane = kSlot % kPlanes<Layout>;
        const auto codes =
            plane<Layout::kBits, kPlane>(d16, kSlot < kPlanes<Layout> ? joined.low : joined.high);
        for (int r = 0; r < kQueries; ++r)
          acc[r][x][kSlot - kFirst] = add_products(di, codes, weight[r], acc[r][x][kSlot - kFirst]);
      };
      [&]<int... kSlot>(std::integer_sequence<int, kSlot...>) KV_INLINE {
        (add_slot(std::integral_constant<int, kSlot>()), ...);
      }
      (std::make_integer_sequence<int, kSlots>());
    }
  }
}

// Adds the rows' weighted values to sum [kQueries, head_dim], kWide vectors of words at a time.
template <class Layout, int kPack, int kWide, int kQueries, class DI>
HWY_NOINLINE void add_dealt_values(DI di, const std::byte* const* rows, int pairs,
                                   const DealtWeights& weights, int head_dim, Ahead& shared_ahead,
                                   float* sum) {
  const hn::RebindToFloat<DI> df;
  const hn::RepartitionToNarrow<DI> d16;
  constexpr int kSlots = 32 / Layout::kBits, kPass = kSlotsOf<Layout, DI, kQueries>;
  constexpr bool kKeep = kSlots / kPass > 2;  // what passes read again and again is joined once
  static_assert(!kKeep || kWide == 1);
  const int words = head_dim * Layout::kBits / 32, lanes = static_cast<int>(hn::Lanes(di));
  Ahead ahead = shared_ahead;  // a local one can live in registers
  HWY_ALIGN int16_t kept[kKeep ? kTileRows / 2 : 1][2][hn::MaxLanes(d16)];
  for (int w = 0; w < words; w += kWide * lanes) {
    if constexpr (kKeep) {
      for (int i = 0; i < pairs; i += kPack) {
        const auto joined = load_pair<kPack>(di, rows + 2 * i, w);
        hn::Store(joined.low, d16, kept[i / kPack][0]);
        hn::Store(joined.high, d16, kept[i / kPack][1]);
      }
    }
    const auto load = [&](int i, int x) KV_INLINE {
      if constexpr (kKeep) {
        return JoinedPair<DI>{hn::Load(d16, kept[i / kPack][0]), hn::Load(d16, kept[i / kPack][1])};
      } else {
        return load_pair<kPack>(di, rows + 2 * i, w + x * lanes);
      }
    };
    const auto pass = [&](auto index) KV_INLINE {
      constexpr int kFirst = kPass * decltype(index)::value;
      hn::Vec<DI> acc[kQueries][kWide][kPass];
      sum_dealt_slots<Layout, kPack, kFirst, kPass, kWide, kQueries>(di, pairs, weights, ahead, acc, load);
      for (int r = 0; r < kQueries; ++r) {
        const auto step = hn::Set(df, weights.step[r]), zero = hn::Set(df, weights.zero[r]);
        for (int x = 0; x < kWide; ++x) {
          float* at = sum + r * head_dim + kFirst * words + w + x * lanes;
          for (int slot = 0; slot < kPass; slot += kPack, at += kPack * words) {
            const auto exact = hn::ConvertTo(df, join_pack<kPack>(di, acc[r][x] + slot));
            hn::StoreU(hn::Add(hn::LoadU(df, at), hn::MulAdd(exact, step, zero)), df, at);
          }
        }
      }
    };
    [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) KV_INLINE {
      (pass(std::integral_constant<int, kIndex>()), ...);
    }
    (std::make_integer_sequence<int, kSlots / kPass>());
  }
  shared_ahead = ahead;
}

// Calls with how many vectors of a row of `words` are worked on at once. Those of one query are as many as
// there are registers for, so that rows are read from end to end, as memory delivers them.
template <class Layout, int kPack, int kQueries, class DI, class Call>
HWY_INLINE void with_wide([[maybe_unused]] DI di, [[maybe_unused]] int words, Call call) {
  constexpr int kLanes = hn::MaxLanes(DI()), kMost = kSumsAtOnce<DI> / kSlotsOf<Layout, DI, kQueries>;
  if constexpr (kQueries == 1 && kPack == 1) {
    if constexpr (kMost >= 4) {
      if (words % (4 * kLanes) == 0) return call(std::integral_constant<int, 4>());
    }
    if constexpr (kMost >= 2) {
      if (words % (2 * kLanes) == 0) return call(std::integral_constant<int, 2>());
    }
  }
  call(std::integral_constant<int, 1>());
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
