// Weighted values of rows of codes in blocks (q8_0, q4_0), compiled once for each instruction set. A row has a weight
// for each of its blocks: probability times scale.
#include <algorithm>

#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/block_values.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/block_codes-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"
#include "kernels/cpu/lane_sums-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- weights ----

// Probabilities p [kQueries, count], kScoreStride apart, times their rows' scales -> to [groups, numbers / lanes,
// queries, lanes]; `top` gets the largest magnitudes, lane by lane.
template <int kQueries, class DF>
HWY_INLINE void scale_weights(DF df, const float* p, const BlockScales& scales, int count, int blocks,
                              hn::Vec<DF> (&top)[kQueries], float* to) {
  const hn::RebindToSigned<DF> di;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const int group_blocks = scales.group_blocks, shift = group_blocks / 2;  // its logarithm
  const int numbers = whole_steps(count) * group_blocks;                   // in a group
  // From a row's lane to those of its blocks.
  const auto spread = hn::IndicesFromVec(df, hn::ShiftRightSame(hn::Iota(di, 0), shift));
  for (int r = 0; r < kQueries; ++r) top[r] = hn::Zero(df);
  for (int g = 0; g * group_blocks < blocks; ++g) {
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
}

// Those weights -> out.
template <class F, int kQueries>
HWY_INLINE void code_block_weights(const float* p, const BlockScales& scales, int count, int blocks,
                                   BlockWeights& out) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::RepartitionToNarrow<decltype(di)> d16;
  const hn::CappedTag<int32_t, 4> four;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const int group_blocks = scales.group_blocks, numbers = whole_steps(count) * group_blocks;
  HWY_ALIGN float weight[kTileRows * kMaxBlocks * kQueries];
  hn::Vec<decltype(df)> top[kQueries], inverse[kQueries];
  scale_weights<kQueries>(df, p, scales, count, blocks, top, weight);
  for (int r = 0; r < kQueries; ++r) {
    const float largest = hn::GetLane(hn::MaxOfLanes(df, top[r]));
    inverse[r] = hn::Set(df, largest > 0.0f ? kLargestWeightCode / largest : 0.0f);
    out.step[r] = largest * (1.0f / kLargestWeightCode);
  }
  out.group_blocks = group_blocks;
  const float* from = weight;
  for (int g = 0; g * group_blocks < blocks; ++g) {
    hn::Vec<decltype(di)> sum[kQueries];
    for (int r = 0; r < kQueries; ++r) sum[r] = hn::Zero(di);
    for (int i = 0; i < numbers / 2; i += 16, from += 16 * kQueries) {
      for (int part = 0; part < 16; part += lanes) {
        for (int r = 0; r < kQueries; ++r, from += lanes) {
          const auto codes = pair_up(di, rounded_bits(df, hn::Load(df, from), inverse[r]),
                                     rounded_bits(df, hn::Load(df, from + 16 * kQueries), inverse[r]));
          const int at = g * BlockWeights::kPairs * group_blocks + i + part;
          hn::Store(codes, di, out.pair + r * BlockWeights::kStride + at);
          sum[r] = add_products(di, hn::BitCast(d16, codes), hn::Set(d16, 1), sum[r]);
        }
      }
    }
    for (int r = 0; r < kQueries; ++r) {
      auto all = sum_of_blocks(di, sum[r]);
      if (group_blocks == 2) all = hn::Add(all, hn::Shuffle1032(all));
      hn::StoreU(hn::Mul(all, hn::Set(four, -kMiddle<F::kBits>)), four,
                 out.start + r * kMaxBlocks + g * group_blocks);
    }
  }
}

// The index of the number that each lane of the words from `word` on needs, among those of a group or of two
// rows.
template <class F, int kPack, class DI>
HWY_INLINE auto blocks_of_words(DI di, int word, int group_blocks) {
  const auto block = hn::ShiftRight<kBlockShift<F>>(hn::Add(hn::Iota(di, 0), hn::Set(di, word)));
  return hn::IndicesFromVec(di, hn::And(block, hn::Set(di, kPack * group_blocks - 1)));
}

// ---- values ----

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

// Slots kFirst … kFirst + kCount - 1 of the words from `w` on, of all pairs of rows under the weights of kQueries
// queries. Exact.
template <class F, int kPack, int kFirst, int kCount, int kQueries, class DI>
HWY_INLINE void sum_block_slots(DI di, const std::byte* const* rows, int pairs, int w,
                                const BlockWeights& weights, Prefetcher& prefetcher,
                                hn::Vec<DI> (&acc)[kQueries][kCount]) {
  const hn::RepartitionToNarrow<DI> d16;
  const int group_blocks = weights.group_blocks, apart = 16 / group_blocks;
  const int block = w / kWordsPerBlock<F> & -group_blocks;  // the group's first
  const int32_t *pair = weights.pair + block * BlockWeights::kPairs, *first = weights.start + block;
  const auto blocks = blocks_of_words<F, kPack>(di, w, group_blocks);
  for (int r = 0; r < kQueries; ++r, first += kMaxBlocks) {
    auto start = hn::TableLookupLanes(hn::LoadDup128(di, first), blocks);
    if constexpr (kPack == 2) start = hn::IfThenElseZero(hn::FirstN(di, hn::Lanes(di) / 2), start);
    for (auto& x : acc[r]) x = start;
  }
  for (int i = 0; i < pairs; i += kPack, pair += kPack * group_blocks) {
    prefetcher.step();
    const std::byte* const* first_row = rows + i + (i & -apart);
    const auto joined = join_halves(di, load_rows<F, kPack>(di, first_row, 1, w),
                                    load_rows<F, kPack>(di, first_row + apart, 1, w));
    hn::Vec<decltype(d16)> weight[kQueries];
    for (int r = 0; r < kQueries; ++r) {
      const auto some = hn::LoadDup128(di, pair + r * BlockWeights::kStride);
      weight[r] = hn::BitCast(d16, hn::TableLookupLanes(some, blocks));
    }
    unroll<kCount>([&](auto index) KV_INLINE {
      constexpr int kSlot = decltype(index)::value;
      const auto codes = slot_of<F::kBits, kFirst + kSlot>(di, joined);
      for (int r = 0; r < kQueries; ++r) acc[r][kSlot] = add_products(di, codes, weight[r], acc[r][kSlot]);
    });
  }
}

// sums [slots, lanes] of words w … -> the elements' places in `sum`, added.
template <class F, class DF, size_t kSlotCount, size_t kLanes>
HWY_INLINE void add_in_order(DF df, const float (&sums)[kSlotCount][kLanes], int w, float* sum) {
  const int lanes = static_cast<int>(hn::Lanes(df));
  HWY_ALIGN float ordered[4 * kLanes];
  constexpr int kStep = static_cast<int>(kSlotCount) / 4;  // ggml's 4-bit bytes: even slots, then odd ones
  for (int part = 0; part < kStep; ++part) {
    hn::StoreInterleaved4(hn::Load(df, sums[part]), hn::Load(df, sums[part + kStep]),
                          hn::Load(df, sums[part + 2 * kStep]), hn::Load(df, sums[part + 3 * kStep]), df,
                          ordered);
    constexpr int kChunk = 4 * kWordsPerBlock<F>;  // consecutive elements of a block, a vector or more
    for (int i = 0; i < 4 * lanes; i += lanes) {
      const int word = w + i / 4;
      float* at = sum + word / kWordsPerBlock<F> * kGgmlBlock + part * kChunk + word % kWordsPerBlock<F> * 4;
      hn::StoreU(hn::Add(hn::LoadU(df, at), hn::Load(df, ordered + i)), df, at);
    }
  }
}

// Adds the rows' weighted values to sum [kQueries, head_dim].
template <class F, int kPack, int kQueries, class DI>
HWY_NOINLINE void add_block_values(DI di, const std::byte* const* rows, int pairs,
                                   const BlockWeights& weights, int head_dim, Prefetcher& shared_prefetcher,
                                   float* sum) {
  const typename OneRow<DI, kPack>::Tag row;
  const hn::RebindToFloat<decltype(row)> df;
  constexpr int kCount = kSlots<F::kBits>, kPass = kSlotsAtOnce<F::kBits, DI, kQueries>;
  Prefetcher prefetcher = shared_prefetcher;  // a local one can live in registers
  for (int w = 0; w < words_of(F::kBits, head_dim); w += static_cast<int>(hn::Lanes(di))) {
    HWY_ALIGN float sums[kQueries][kCount][hn::MaxLanes(df)];
    unroll<kCount / kPass>([&](auto index) KV_INLINE {
      constexpr int kFirst = kPass * decltype(index)::value;
      hn::Vec<DI> acc[kQueries][kPass];
      sum_block_slots<F, kPack, kFirst, kPass, kQueries>(di, rows, pairs, w, weights, prefetcher, acc);
      for (int r = 0; r < kQueries; ++r) {
        const auto step = hn::Set(df, weights.step[r]);
        for (int slot = 0; slot < kPass; ++slot) {
          const auto exact = hn::ConvertTo(df, join_rows<kPack>(di, acc[r][slot]));
          hn::Store(hn::Mul(exact, step), df, sums[r][kFirst + slot]);
        }
      }
    });
    for (int r = 0; r < kQueries; ++r) add_in_order<F>(df, sums[r], w, sum + r * head_dim);
  }
  shared_prefetcher = prefetcher;
}

template <class F, int kPack, class DI>
bool add_blocks_of(DI di, const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  CodeScratch& s = work.scratch;
  const int blocks = work.head_dim / kGgmlBlock, words = words_of(F::kBits, work.head_dim);
  if (!load_block_scales(side.meta + run.first, run.count, blocks, s.blocks)) return false;
  const std::byte* scratch[kPaddedRows];
  const std::byte* const* rows = pad_rows(side.row + run.first, run.count, scratch);
  const int queries = static_cast<int>(work.task.queries), pairs = whole_steps(run.count) / 2;
  int64_t steps = 0;
  for_query_blocks(queries, [&](auto some, int) KV_ATTR {
    steps += value_steps<F::kBits, kPack, decltype(some)::value>(di, pairs, words);
  });
  work.prefetcher.begin_part(steps);
  for_query_blocks(queries, [&](auto some, int r) KV_ATTR {
    constexpr int kQueries = decltype(some)::value;
    code_block_weights<F, kQueries>(p + r * kScoreStride, s.blocks, run.count, blocks, s.block_weights);
    add_block_values<F, kPack, kQueries>(di, rows, pairs, s.block_weights, work.head_dim, work.prefetcher,
                                         work.task.sum + int64_t{r} * work.head_dim);
  });
  return true;
}

bool add_blocks(const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  bool done = false;
  with_blocks(run.v, work.head_dim, [&](auto format, auto di, auto pack) KV_ATTR {
    done = add_blocks_of<decltype(format), decltype(pack)::value>(di, side, run, work, p);
  });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
