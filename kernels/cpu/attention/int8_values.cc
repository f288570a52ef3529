// Weighted values of rows of codes in blocks (q8_0, q4_0) with weights of 8 bits, compiled once for each instruction
// set. A row has a weight for each of its blocks, probability times scale; a block's weights in a tile share a step.
//
// Bytes of four rows change places, so that a 32-bit lane holds an element of four rows and meets their four weights:
//
//   in     row 0   … e2 e1 e0      out   word 0   e0 of rows 3, 2, 1, 0      (in each 128-bit block)
//          row 1   … e2 e1 e0            word 1   e1 of rows 3, 2, 1, 0
#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/int8_values.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/int8_codes-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- weights ----

// Of numbers whose blocks alternate, each block's largest in the lanes of four.
template <class DF>
HWY_INLINE auto largest_of_blocks([[maybe_unused]] DF df, hn::Vec<DF> top, int group_blocks) {
  if constexpr (hn::MaxLanes(DF()) > 4) {
    const hn::Half<DF> half;
    return largest_of_blocks(half, hn::Max(hn::LowerHalf(half, top), hn::UpperHalf(half, top)), group_blocks);
  } else {
    return group_blocks == 2 ? hn::Max(top, hn::Shuffle1032(top)) : top;
  }
}

// Bytes [4 rows, 4 blocks], or [2 quads, 4 rows, 2 blocks], -> words of four rows.
inline auto quad_order(int group_blocks) {
  static constexpr uint8_t kFour[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  static constexpr uint8_t kTwo[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  return hn::LoadU(hn::CappedTag<uint8_t, 16>(), group_blocks == 2 ? kTwo : kFour);
}

// Group g of one query's probabilities p [count] times its scales -> its quads, starts and steps.
template <class F>
HWY_INLINE void code_group(const float* p, const BlockScales& scales, int count, int g, int32_t* quad,
                           int32_t* start, float* step) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int8_t, decltype(df)> narrow;
  const hn::CappedTag<uint8_t, 16> bytes;
  const hn::CappedTag<int32_t, 4> four;
  const hn::CappedTag<float, 4> four_floats;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const int group_blocks = scales.group_blocks, shift = group_blocks / 2;  // its logarithm
  const int numbers = whole_steps(count) * group_blocks;
  const auto spread = hn::IndicesFromVec(df, hn::ShiftRightSame(hn::Iota(di, 0), shift));
  HWY_ALIGN float weight[kTileRows * 4];
  auto top = hn::Zero(df);
  for (int i = 0; i < numbers; i += lanes) {
    const auto rows = load_valid(df, p, i >> shift, count);
    const auto product = hn::Mul(hn::TableLookupLanes(rows, spread), hn::Load(df, scales.group(g) + i));
    hn::Store(product, df, weight + i);
    top = hn::Max(top, hn::Abs(product));
  }
  const auto largest = largest_of_blocks(df, top, group_blocks);
  const auto all = hn::Set(four_floats, kLargestInt8);
  HWY_ALIGN float inverse[4];
  hn::Store(hn::IfThenElseZero(hn::Gt(largest, hn::Zero(four_floats)), hn::Div(all, largest)), four_floats,
            inverse);
  hn::StoreU(hn::Mul(largest, hn::Set(four_floats, 1.0f / kLargestInt8)), four_floats, step);
  HWY_ALIGN int8_t codes[kTileRows * 4];
  const auto factor = hn::LoadDup128(df, inverse);
  for (int i = 0; i < numbers; i += lanes)
    hn::StoreU(hn::DemoteTo(narrow, hn::NearestInt(hn::Mul(hn::Load(df, weight + i), factor))), narrow,
               codes + i);
  const auto order = quad_order(group_blocks);
  auto sum = hn::Zero(four);
  for (int i = 0; i < numbers; i += 16, quad += 4) {
    const auto row_bytes = hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(codes + i));
    const auto quads = hn::BitCast(four, hn::TableLookupBytes(row_bytes, order));
    hn::StoreU(quads, four, quad);
    sum = add_quad_products(four, hn::Set(four, 0x01010101), quads, sum);
  }
  if (group_blocks == 2) sum = hn::Add(sum, hn::Shuffle1032(sum));
  hn::StoreU(hn::Mul(sum, hn::Set(four, -kMiddle<F::kBits>)), four, start);
}

// ---- values ----

// Words of four rows -> the same bytes of four rows as neighbours, element by element.
template <class DI>
HWY_INLINE void transpose_bytes(DI di, hn::Vec<DI> (&rows)[4]) {
  const hn::Repartition<uint8_t, DI> d8;
  const hn::Repartition<uint16_t, DI> d16;
  const auto low = [&](auto d, auto a, auto b) KV_INLINE {
    return hn::BitCast(di, hn::InterleaveLower(d, hn::BitCast(d, a), hn::BitCast(d, b)));
  };
  const auto high = [&](auto d, auto a, auto b) KV_INLINE {
    return hn::BitCast(di, hn::InterleaveUpper(d, hn::BitCast(d, a), hn::BitCast(d, b)));
  };
  const auto low01 = low(d8, rows[0], rows[1]), low23 = low(d8, rows[2], rows[3]);
  const auto high01 = high(d8, rows[0], rows[1]), high23 = high(d8, rows[2], rows[3]);
  rows[0] = low(d16, low01, low23);
  rows[1] = high(d16, low01, low23);
  rows[2] = low(d16, high01, high23);
  rows[3] = high(d16, high01, high23);
}

// Byte plane kPlane of the words from `w` on, of all quads of rows under the weights of kQueries queries. Exact.
template <class F, int kPlane, int kQueries, class DI>
HWY_INLINE void sum_quads(DI di, const std::byte* const* rows, int quads, int w, const Int8Weights& weights,
                          int group_blocks, Prefetcher& prefetcher, hn::Vec<DI> (&acc)[kQueries][4]) {
  const int block = w / kWordsPerBlock<F> & -group_blocks;  // the group's first
  const int32_t *quad = weights.quad + block * Int8Weights::kQuads, *first = weights.start + block;
  const auto lane = hn::Add(hn::Iota(di, 0), hn::Set(di, w));
  const auto blocks =
      hn::IndicesFromVec(di, hn::And(hn::ShiftRight<kBlockShift<F>>(lane), hn::Set(di, group_blocks - 1)));
  for (int r = 0; r < kQueries; ++r, first += kMaxBlocks) {
    const auto start = hn::TableLookupLanes(hn::LoadDup128(di, first), blocks);
    for (auto& x : acc[r]) x = start;
  }
  for (int i = 0; i < quads; ++i, rows += 4, quad += group_blocks) {
    prefetcher.step();
    hn::Vec<DI> codes[4];
    for (int k = 0; k < 4; ++k) codes[k] = byte_plane<F::kBits, kPlane>(di, load_words<F>(di, rows[k], w));
    transpose_bytes(di, codes);
    unroll<kQueries>([&](auto query) KV_INLINE {
      constexpr int kQuery = decltype(query)::value;
      const auto some = hn::LoadDup128(di, quad + kQuery * Int8Weights::kStride);
      const auto weight = hn::TableLookupLanes(some, blocks);
      unroll<4>([&](auto index) KV_INLINE {
        constexpr int kIndex = decltype(index)::value;
        acc[kQuery][kIndex] = add_quad_products(di, codes[kIndex], weight, acc[kQuery][kIndex]);
      });
    });
  }
}

// Exact sums of words w … times their blocks' steps -> added to the elements' places in `sum`.
template <class F, int kPlane, class DI>
HWY_INLINE void add_quad_sums(DI di, const hn::Vec<DI> (&acc)[4], int w, const float* step, float* sum) {
  const hn::RebindToFloat<DI> df;
  const hn::CappedTag<float, 4> four;
  constexpr int kApart = 128 / F::kBits;  // elements from a 128-bit block's to the next one's
  const int lanes = static_cast<int>(hn::Lanes(di));
  sum += w * 32 / F::kBits + kPlane * 16;
  HWY_ALIGN float sums[4][hn::MaxLanes(df)];
  for (int k = 0; k < 4; ++k) hn::Store(hn::ConvertTo(df, acc[k]), df, sums[k]);
  for (int i = 0; i < lanes; i += 4, sum += kApart) {
    const auto factor = hn::Set(four, step[(w + i) / kWordsPerBlock<F>]);
    for (int k = 0; k < 4; ++k) {
      const auto before = hn::LoadU(four, sum + 4 * k);
      hn::StoreU(hn::MulAdd(hn::Load(four, sums[k] + i), factor, before), four, sum + 4 * k);
    }
  }
}

// Adds the rows' weighted values to sum [kQueries, head_dim].
template <class F, int kQueries, class DI>
HWY_NOINLINE void add_int8_values(DI di, const std::byte* const* rows, int quads, const Int8Weights& weights,
                                  int group_blocks, int head_dim, Prefetcher& shared_prefetcher, float* sum) {
  Prefetcher prefetcher = shared_prefetcher;  // a local one can live in registers
  for (int w = 0; w < words_of(F::kBits, head_dim); w += static_cast<int>(hn::Lanes(di))) {
    unroll<kBytePlanes<F::kBits>>([&](auto index) KV_INLINE {
      constexpr int kPlane = decltype(index)::value;
      hn::Vec<DI> acc[kQueries][4];
      sum_quads<F, kPlane, kQueries>(di, rows, quads, w, weights, group_blocks, prefetcher, acc);
      for (int r = 0; r < kQueries; ++r)
        add_quad_sums<F, kPlane>(di, acc[r], w, weights.step + r * kMaxBlocks, sum + r * head_dim);
    });
  }
  shared_prefetcher = prefetcher;
}

template <class F, class DI>
bool add_int8_of(DI di, const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  CodeScratch& s = work.scratch;
  const int blocks = work.head_dim / kGgmlBlock, words = words_of(F::kBits, work.head_dim);
  if (!load_block_scales(side.meta + run.first, run.count, blocks, s.blocks)) return false;
  const std::byte* scratch[kPaddedRows];
  const std::byte* const* rows = pad_rows(side.row + run.first, run.count, scratch);
  const int queries = static_cast<int>(work.task.queries), quads = whole_steps(run.count) / 4;
  const int group_blocks = s.blocks.group_blocks;
  Int8Weights& weights = s.int8_weights;
  const int vectors = words / static_cast<int>(hn::Lanes(di)) * kBytePlanes<F::kBits>;
  work.prefetcher.begin_part(int64_t{query_blocks(queries)} * quads * vectors);
  for_query_blocks(queries, [&](auto some, int r) KV_ATTR {
    constexpr int kQueries = decltype(some)::value;
    for (int i = 0; i < kQueries; ++i) {
      for (int b = 0; b < blocks; b += group_blocks) {
        code_group<F>(p + (r + i) * kScoreStride, s.blocks, run.count, b / group_blocks,
                      weights.quad + i * Int8Weights::kStride + b * Int8Weights::kQuads,
                      weights.start + i * kMaxBlocks + b, weights.step + i * kMaxBlocks + b);
      }
    }
    add_int8_values<F, kQueries>(di, rows, quads, weights, group_blocks, work.head_dim, work.prefetcher,
                                 work.task.sum + int64_t{r} * work.head_dim);
  });
  return true;
}

bool add_blocks_int8(const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  bool done = false;
  with_blocks(run.v, work.head_dim, [&](auto format, auto di, auto pack) KV_ATTR {
    const typename OneRow<decltype(di), decltype(pack)::value>::Tag row;
    done = add_int8_of<decltype(format)>(row, side, run, work, p);
  });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
