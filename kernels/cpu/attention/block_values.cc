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
#include "kernels/cpu/attention/block_weights-inl.h"
#include "kernels/cpu/attention/minima-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The index of the number that each lane of the words from `word` on needs, among those of four blocks or of two rows.
template <class F, int kPack, class D>
HWY_INLINE auto blocks_of_words(D d, int word) {
  const hn::RebindToSigned<D> di;
  auto block = hn::ShiftRight<kBlockShift<F>>(hn::Add(hn::Iota(di, 0), hn::Set(di, word)));
  if constexpr (kPack == 2) block = hn::Add(block, hn::And(block, hn::Set(di, 2)));  // of two blocks a row
  return hn::IndicesFromVec(d, hn::And(block, hn::Set(di, 4 * kPack - 1)));
}

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
                                const BlockWeights<2>& weights, Prefetcher& prefetcher,
                                hn::Vec<DI> (&acc)[kQueries][1][kCount]) {
  const int block = w / kWordsPerBlock<F> & -4;  // the first of four
  const int32_t *pair = weights.word + block * weights.kWords, *first = weights.start + block;
  const auto blocks = blocks_of_words<F, kPack>(di, w);
  const auto spread = [&](const int32_t* some) KV_INLINE {
    return hn::TableLookupLanes(kPack == 1 ? hn::LoadDup128(di, some) : hn::LoadU(di, some), blocks);
  };
  sum_slots<F::kBits, kPack, kFirst>(
      di, pairs, prefetcher, acc,
      [&](int r) KV_INLINE {
        const auto start = spread(first + r * kMaxBlocks);
        return kPack == 1 ? start : hn::IfThenElseZero(hn::FirstN(di, hn::Lanes(di) / 2), start);
      },
      [&](int r, int i) KV_INLINE { return spread(pair + r * weights.kStride + 4 * i); },
      [&](int i, int) KV_INLINE {
        const std::byte* const* first_row = rows + weights.row(i);
        return join_halves(di, load_rows<F, kPack>(di, first_row, 1, w),
                           load_rows<F, kPack>(di, first_row + weights.kApart, 1, w));
      });
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
                                   const BlockWeights<2>& weights, int head_dim,
                                   Prefetcher& shared_prefetcher, float* sum) {
  const typename OneRow<DI, kPack>::Tag row;
  const hn::RebindToFloat<decltype(row)> df;
  constexpr int kCount = kSlots<F::kBits>, kPass = kSlotsAtOnce<F::kBits, DI, kQueries>;
  Prefetcher prefetcher = shared_prefetcher;  // a local one can live in registers
  for (int w = 0; w < words_of(F::kBits, head_dim); w += static_cast<int>(hn::Lanes(di))) {
    HWY_ALIGN float sums[kQueries][kCount][hn::MaxLanes(df)];
    unroll<kCount / kPass>([&](auto index) KV_INLINE {
      constexpr int kFirst = kPass * decltype(index)::value;
      hn::Vec<DI> acc[kQueries][1][kPass];
      sum_block_slots<F, kPack, kFirst, kPass, kQueries>(di, rows, pairs, w, weights, prefetcher, acc);
      for (int r = 0; r < kQueries; ++r) {
        const float* steps = weights.step + r * kMaxBlocks + (w / kWordsPerBlock<F> & -4);
        const auto step = hn::TableLookupLanes(hn::LoadDup128(df, steps), blocks_of_words<F, 1>(df, w));
        for (int slot = 0; slot < kPass; ++slot) {
          const auto exact = hn::ConvertTo(df, join_rows<kPack>(di, acc[r][0][slot]));
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
  if (!load_scale_columns(side.meta + run.first, run.count, blocks, true, s.columns)) return false;
  const std::byte* scratch[kPaddedRows];
  const std::byte* const* rows = pad_rows(side.row + run.first, run.count, scratch, kTileRows);
  const int queries = static_cast<int>(work.task.queries);
  const int pairs = run.count > kTileRows / 2 ? kTileRows / 2 : kTileRows / 4;
  int64_t steps = 0;
  for_query_blocks(queries, [&](auto some, int) KV_ATTR {
    steps += value_steps<F::kBits, kPack, decltype(some)::value>(di, pairs, words);
  });
  work.prefetcher.begin_part(steps);
  for_query_blocks(queries, [&](auto some, int r) KV_ATTR {
    constexpr int kQueries = decltype(some)::value;
    code_block_weights<F, kQueries>(p + r * kScoreStride, s.columns, run.count, blocks, s.block_weights);
    add_block_values<F, kPack, kQueries>(di, rows, pairs, s.block_weights, work.head_dim, work.prefetcher,
                                         work.task.sum + int64_t{r} * work.head_dim);
  });
  return true;
}

bool add_blocks(const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  SplitScales& split = work.scratch.split;
  const TileSide& stored = split_minima(side, run.v, run, work.head_dim, split);
  bool done = false;
  with_blocks(run.v, work.head_dim, [&](auto format, auto di, auto pack) KV_ATTR {
    done = add_blocks_of<decltype(format), decltype(pack)::value>(di, stored, run, work, p);
  });
  if (done && has_minima(run.v)) add_middles_to_values(split, run.count, work, p);
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
