// Weighted values of rows of codes in blocks (q8_0, q4_0) with weights of 8 bits, compiled once for each instruction
// set. A row has a weight for each of its blocks, probability times scale; a block's weights in a tile share a step. Signed
// codes (q8_0) have scales without a sign, so that weights are unsigned bytes; unsigned ones (q4_0) meet signed weights.
//
// Bytes of four rows change places, so that a 32-bit lane holds an element of four rows and meets their four weights:
//
//   in     row 0   … e2 e1 e0      out   lane 0   e0 of rows 3, 2, 1, 0
//          row 1   … e2 e1 e0            lane 1   e1 of rows 3, 2, 1, 0
#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/int8_values.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/block_weights-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class F>
constexpr bool kSignedCodes = kUnsignedWeights<F, 4>;

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
HWY_INLINE void sum_quads(DI di, const std::byte* const* rows, int w, const BlockWeights<4>& weights,
                          Prefetcher& prefetcher, hn::Vec<DI> (&acc)[kQueries][4]) {
  constexpr int kQuads = BlockWeights<4>::kWords;
  const int group = w / kWordsPerBlock<F> & -4;  // its first block
  const int32_t *quad = weights.word + group * kQuads, *first = weights.start + group;
  const auto block = hn::ShiftRight<kBlockShift<F>>(hn::Add(hn::Iota(di, 0), hn::Set(di, w)));
  const auto blocks = hn::IndicesFromVec(di, hn::And(block, hn::Set(di, 3)));
  for (int r = 0; r < kQueries; ++r, first += kMaxBlocks) {
    const auto start =
        kSignedCodes<F> ? hn::Zero(di) : hn::TableLookupLanes(hn::LoadDup128(di, first), blocks);
    for (auto& x : acc[r]) x = start;
  }
  for (int i = 0; i < kQuads; ++i, ++rows, quad += 4) {
    prefetcher.step();
    hn::Vec<DI> codes[4];
    for (int k = 0; k < 4; ++k) {
      const auto* from = reinterpret_cast<const int32_t*>(rows[k * kQuads]) + w;
      codes[k] = byte_plane<F::kBits, kPlane>(di, hn::LoadU(di, from));
    }
    transpose_bytes(di, codes);
    unroll<kQueries>([&](auto query) KV_INLINE {
      constexpr int kQuery = decltype(query)::value;
      const auto some = hn::LoadDup128(di, quad + kQuery * BlockWeights<4>::kStride);
      const auto weight = hn::TableLookupLanes(some, blocks);
      unroll<4>([&](auto index) KV_INLINE {
        constexpr int kIndex = decltype(index)::value;
        auto& sum = acc[kQuery][kIndex];
        sum = kSignedCodes<F> ? add_quad_products(di, weight, codes[kIndex], sum)
                              : add_quad_products(di, codes[kIndex], weight, sum);
      });
    });
  }
}

// Exact sums of words w … times their blocks' steps -> added to the elements' places in `sum`.
template <class F, int kPlane, class DI>
HWY_INLINE void add_quad_sums(DI di, hn::Vec<DI> (&acc)[4], int w, const float* step, float* sum) {
  const hn::RebindToFloat<DI> df;
  constexpr int kBlockWords = 4, kApart = kBlockWords * 32 / F::kBits;  // words, elements of 128 bits
  const int lanes = static_cast<int>(hn::Lanes(di));
  transpose_blocks(di, acc);
  for (int i = 0; i < 4; ++i) {
    const int at = i * lanes / 16 * kBlockWords + w, part = i * lanes % 16;
    float* to = sum + at / kBlockWords * kApart + kPlane * 16 + part;
    const auto factor = hn::Set(df, step[at / kWordsPerBlock<F>]);
    hn::StoreU(hn::MulAdd(hn::ConvertTo(df, acc[i]), factor, hn::LoadU(df, to)), df, to);
  }
}

// Adds the rows' weighted values to sum [kQueries, head_dim].
template <class F, int kQueries, class DI>
HWY_NOINLINE void add_int8_values(DI di, const std::byte* const* rows, const BlockWeights<4>& weights,
                                  int head_dim, Prefetcher& shared_prefetcher, float* sum) {
  Prefetcher prefetcher = shared_prefetcher;  // a local one can live in registers
  for (int w = 0; w < words_of(F::kBits, head_dim); w += static_cast<int>(hn::Lanes(di))) {
    unroll<kBytePlanes<F::kBits>>([&](auto index) KV_INLINE {
      constexpr int kPlane = decltype(index)::value;
      hn::Vec<DI> acc[kQueries][4];
      sum_quads<F, kPlane, kQueries>(di, rows, w, weights, prefetcher, acc);
      for (int r = 0; r < kQueries; ++r)
        add_quad_sums<F, kPlane>(di, acc[r], w, weights.step + r * kMaxBlocks, sum + r * head_dim);
    });
  }
  shared_prefetcher = prefetcher;
}

template <class F, class DI>
bool add_int8_of(DI di, const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  CodeScratch& s = work.scratch;
  const int count = run.count, blocks = work.head_dim / kGgmlBlock, words = words_of(F::kBits, work.head_dim);
  if (!load_scale_columns(side.meta + run.first, count, blocks, !kSignedCodes<F>, s.columns)) return false;
  const std::byte* scratch[kPaddedRows];
  const std::byte* const* rows = pad_rows(side.row + run.first, count, scratch, kTileRows);
  const int queries = static_cast<int>(work.task.queries);
  const int vectors = words / static_cast<int>(hn::Lanes(di)) * kBytePlanes<F::kBits>;
  work.prefetcher.begin_part(int64_t{query_blocks(queries)} * BlockWeights<4>::kWords * vectors);
  for_query_blocks(queries, [&](auto some, int r) KV_ATTR {
    constexpr int kQueries = decltype(some)::value;
    code_block_weights<F, kQueries>(p + r * kScoreStride, s.columns, count, blocks, s.int8_weights);
    add_int8_values<F, kQueries>(di, rows, s.int8_weights, work.head_dim, work.prefetcher,
                                 work.task.sum + int64_t{r} * work.head_dim);
  });
  return true;
}

bool add_blocks_int8(const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  bool done = false;
  with_blocks(run.v, work.head_dim, [&](auto format, auto di, auto pack) KV_ATTR {
    using F = decltype(format);
    const typename OneRow<decltype(di), decltype(pack)::value>::Tag row;
    if constexpr (!requires { typename F::Stored; }) done = add_int8_of<F>(row, side, run, work, p);
  });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
