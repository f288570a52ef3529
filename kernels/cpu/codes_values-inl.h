// Weighted sums of rows of codes in blocks: see attention_codes-inl.h. The halves of two rows' words are
// joined, so that neighbouring 16-bit lanes are the same element of two rows, and meet those rows' two
// weights. Private to kernels/cpu; compiled once a target.
#if defined(KV_CODES_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_CODES_VALUES_INL_H_
#undef KV_CODES_VALUES_INL_H_
#else
#define KV_CODES_VALUES_INL_H_
#endif

#include <algorithm>

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/codes-inl.h"
#include "kernels/cpu/codes_scales-inl.h"
#include "kernels/cpu/fold-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/tile.h"

KV_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- weights ----

// Weights of up to 4 queries as 16-bit codes: pairs of rows in one 32-bit lane, so that a broadcast of it
// meets the paired rows. They are so far apart as 16 numbers of a group of BlockScales reach, 4 rows or 8.
struct CodedWeights {
  static constexpr int kPairs = kTileRows / 2;
  static constexpr int kStride = kPairs * kMaxBlocks;  // from a query's to the next one's
  HWY_ALIGN int32_t pair[4 * kStride];                 // [queries, groups, pairs, blocks of a group]
  HWY_ALIGN int32_t start[4 * kMaxBlocks];             // [queries, blocks]: -middle * their sum
  float step[4];                                       // a weight is about step * code
  int together;                                        // blocks of a group
};

constexpr float kLargestWeightCode = 32767.0f;

// p [count] from j on, and 0 behind. Looks at a vector of p from no later than the last.
template <class DF>
HWY_INLINE hn::Vec<DF> load_valid(DF df, const float* p, int j, int count) {
  const auto valid = hn::FirstN(df, static_cast<size_t>(std::max(count - j, 0)));
  return hn::IfThenElseZero(valid, hn::LoadU(df, p + std::min(j, count - 1)));
}

// Probabilities p [kQueries, count], kScoreStride apart, of rows with these scales -> out.
template <class Layout, int kQueries>
HWY_INLINE void code_block_weights(const float* p, const BlockScales& scales, int count, int blocks,
                                   CodedWeights& out) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::RepartitionToNarrow<decltype(di)> d16;
  const hn::CappedTag<int32_t, 4> four;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const int together = scales.together, shift = together / 2;  // its logarithm
  const int numbers = whole_steps(count) * together;           // of a group
  // From a row's lane to those of its blocks.
  const auto spread = hn::IndicesFromVec(df, hn::ShiftRightSame(hn::Iota(di, 0), shift));
  HWY_ALIGN float weight[kTileRows * kMaxBlocks * kQueries];  // [groups, numbers / lanes, queries, lanes]
  hn::Vec<decltype(df)> top[kQueries];
  for (int r = 0; r < kQueries; ++r) top[r] = hn::Zero(df);
  float* to = weight;
  for (int g = 0; g * together < blocks; ++g) {
    for (int i = 0; i < numbers; i += lanes) {
      const auto scale = hn::Load(df, scales.group(g) + i);
      for (int r = 0; r < kQueries; ++r, to += lanes) {
        const auto rows = load_valid(df, p + r * kScoreStride, i >> shift, count);
        const auto product = hn::Mul(hn::TableLookupLanes(rows, spread), scale);
        hn::Store(product, df, to);
        top[r] = hn::Max(top[r], hn::Abs(product));
      }
    }
  }
  hn::Vec<decltype(df)> inverse[kQueries];
  for (int r = 0; r < kQueries; ++r) {
    const float largest = hn::GetLane(hn::MaxOfLanes(df, top[r]));
    inverse[r] = hn::Set(df, largest > 0.0f ? kLargestWeightCode / largest : 0.0f);
    out.step[r] = largest * (1.0f / kLargestWeightCode);
  }
  out.together = together;
  const float* from = weight;
  for (int g = 0; g * together < blocks; ++g) {
    hn::Vec<decltype(di)> sum[kQueries];
    for (int r = 0; r < kQueries; ++r) sum[r] = hn::Zero(di);
    for (int i = 0; i < numbers / 2; i += 16, from += 16 * kQueries) {
      for (int part = 0; part < 16; part += lanes) {
        for (int r = 0; r < kQueries; ++r, from += lanes) {
          const auto codes = pair_up(di, rounded_bits(df, hn::Load(df, from), inverse[r]),
                                     rounded_bits(df, hn::Load(df, from + 16 * kQueries), inverse[r]));
          hn::Store(codes, di,
                    out.pair + r * CodedWeights::kStride + g * CodedWeights::kPairs * together + i + part);
          sum[r] = add_products(di, hn::BitCast(d16, codes), hn::Set(d16, 1), sum[r]);
        }
      }
    }
    for (int r = 0; r < kQueries; ++r) {
      auto all = fold_blocks(di, sum[r]);
      if (together == 2) all = hn::Add(all, hn::Shuffle1032(all));
      hn::StoreU(hn::Mul(all, hn::Set(four, -kMiddle<Layout>)), four,
                 out.start + r * kMaxBlocks + g * together);
    }
  }
}

// Which of a group's numbers, or of those of two rows, each lane of the words from `word` on needs.
template <class Layout, int kPack, class DI>
HWY_INLINE auto blocks_of_words(DI di, int word, int together) {
  constexpr int kShift = Layout::kWordsPerBlock == 8 ? 3 : 2;
  const auto block = hn::ShiftRight<kShift>(hn::Add(hn::Iota(di, 0), hn::Set(di, word)));
  return hn::IndicesFromVec(di, hn::And(block, hn::Set(di, kPack * together - 1)));
}

// ---- values ----

// Slots whose sums are kept at once for each of kQueries queries.
template <class Layout, class DI, int kQueries>
constexpr int kSlotsOf = std::min(32 / Layout::kBits, std::max(4, kSumsAtOnce<DI> / kQueries));

// The sums of the kPack rows of a vector.
template <int kPack, class DI>
HWY_INLINE auto join_rows([[maybe_unused]] DI di, hn::Vec<DI> v) {
  if constexpr (kPack == 1) {
    return v;
  } else {
    const hn::Half<DI> half;
    return hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v));
  }
}

// Slots kFirst … kFirst + kSlots - 1 of the words from `w` on, of all pairs of rows under the weights of
// kQueries queries. Exact.
template <class Layout, int kPack, int kFirst, int kSlots, int kQueries, class DI>
HWY_INLINE void sum_slots(DI di, const std::byte* const* rows, int pairs, int w, const CodedWeights& weights,
                          Ahead& ahead, hn::Vec<DI> (&acc)[kQueries][kSlots]) {
  const hn::RepartitionToNarrow<DI> d16;
  const hn::RebindToUnsigned<DI> du;
  const int together = weights.together, apart = 16 / together;
  const int block = w / Layout::kWordsPerBlock & -together;  // the group's first
  const int32_t *pair = weights.pair + block * CodedWeights::kPairs, *first = weights.start + block;
  const auto blocks = blocks_of_words<Layout, kPack>(di, w, together);
  for (int r = 0; r < kQueries; ++r, first += kMaxBlocks) {
    auto start = hn::TableLookupLanes(hn::LoadDup128(di, first), blocks);
    if constexpr (kPack == 2) start = hn::IfThenElseZero(hn::FirstN(di, hn::Lanes(di) / 2), start);
    for (auto& x : acc[r]) x = start;
  }
  for (int i = 0; i < pairs; i += kPack, pair += kPack * together) {
    ahead.step();
    const std::byte* const* first_row = rows + i + (i & -apart);
    const auto a = load_rows<Layout, kPack>(di, first_row, 1, w);
    const auto b = load_rows<Layout, kPack>(di, first_row + apart, 1, w);
    const auto low = hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(b)), hn::BitCast(d16, a));
    const auto high =
        hn::OddEven(hn::BitCast(d16, b), hn::BitCast(d16, hn::ShiftRight<16>(hn::BitCast(du, a))));
    hn::Vec<decltype(d16)> weight[kQueries];
    for (int r = 0; r < kQueries; ++r) {
      const auto some = hn::LoadDup128(di, pair + r * CodedWeights::kStride);
      weight[r] = hn::BitCast(d16, hn::TableLookupLanes(some, blocks));
    }
    const auto add_slot = [&](auto index) KV_INLINE {
      constexpr int kSlot = kFirst + decltype(index)::value, kPlane = kSlot % kPlanes<Layout>;
      const auto codes = plane<Layout::kBits, kPlane>(d16, kSlot < kPlanes<Layout> ? low : high);
      for (int r = 0; r < kQueries; ++r)
        acc[r][kSlot - kFirst] = add_products(di, codes, weight[r], acc[r][kSlot - kFirst]);
    };
    [&]<int... kSlot>(std::integer_sequence<int, kSlot...>) KV_INLINE {
      (add_slot(std::integral_constant<int, kSlot>()), ...);
    }
    (std::make_integer_sequence<int, kSlots>());
  }
}

// sums [slots, lanes] of words w … -> the elements' places in `sum`, added.
template <class Layout, class DF, size_t kSlots, size_t kLanes>
HWY_INLINE void add_in_order(DF df, const float (&sums)[kSlots][kLanes], int w, float* sum) {
  const int lanes = static_cast<int>(hn::Lanes(df));
  HWY_ALIGN float ordered[4 * kLanes];
  constexpr int kStep = static_cast<int>(kSlots) / 4;  // ggml's 4-bit bytes: even slots, then odd ones
  for (int part = 0; part < kStep; ++part) {
    hn::StoreInterleaved4(hn::Load(df, sums[part]), hn::Load(df, sums[part + kStep]),
                          hn::Load(df, sums[part + 2 * kStep]), hn::Load(df, sums[part + 3 * kStep]), df,
                          ordered);
    constexpr int kChunk = 4 * Layout::kWordsPerBlock;  // consecutive elements of a block, a vector or more
    for (int i = 0; i < 4 * lanes; i += lanes) {
      const int word = w + i / 4;
      float* at = sum + word / Layout::kWordsPerBlock * kGgmlBlock + part * kChunk +
                  word % Layout::kWordsPerBlock * 4;
      hn::StoreU(hn::Add(hn::LoadU(df, at), hn::Load(df, ordered + i)), df, at);
    }
  }
}

// How often memory is asked ahead while values of these rows are added under kQueries queries, a vector of
// their words at a time.
template <class Layout, int kPack, int kQueries, class DI>
int64_t value_steps(DI di, int pairs, int words) {
  constexpr int kPasses = 32 / Layout::kBits / kSlotsOf<Layout, DI, kQueries>;
  return int64_t{kPasses} * ((pairs + kPack - 1) / kPack) * (words * kPack / static_cast<int>(hn::Lanes(di)));
}

// Adds the rows' weighted values to sum [kQueries, head_dim].
template <class Layout, int kPack, int kQueries, class DI>
HWY_NOINLINE void add_code_values(DI di, const std::byte* const* rows, int pairs, const CodedWeights& weights,
                                  int head_dim, Ahead& shared_ahead, float* sum) {
  const typename OneRow<DI, kPack>::Tag row;
  const hn::RebindToFloat<decltype(row)> df;
  constexpr int kSlots = 32 / Layout::kBits, kPass = kSlotsOf<Layout, DI, kQueries>;
  const int words = head_dim * Layout::kBits / 32;
  Ahead ahead = shared_ahead;  // a local one can live in registers
  for (int w = 0; w < words; w += static_cast<int>(hn::Lanes(di))) {
    HWY_ALIGN float sums[kQueries][kSlots][hn::MaxLanes(df)];
    const auto pass = [&](auto index) KV_INLINE {
      constexpr int kFirst = kPass * decltype(index)::value;
      hn::Vec<DI> acc[kQueries][kPass];
      sum_slots<Layout, kPack, kFirst, kPass, kQueries>(di, rows, pairs, w, weights, ahead, acc);
      for (int r = 0; r < kQueries; ++r) {
        const auto step = hn::Set(df, weights.step[r]);
        for (int slot = 0; slot < kPass; ++slot) {
          const auto exact = hn::ConvertTo(df, join_rows<kPack>(di, acc[r][slot]));
          hn::Store(hn::Mul(exact, step), df, sums[r][kFirst + slot]);
        }
      }
    };
    [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) KV_INLINE {
      (pass(std::integral_constant<int, kIndex>()), ...);
    }
    (std::make_integer_sequence<int, kSlots / kPass>());
    for (int r = 0; r < kQueries; ++r) add_in_order<Layout>(df, sums[r], w, sum + r * head_dim);
  }
  shared_ahead = ahead;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
