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
#include "kernels/cpu/attention/int8_codes-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"
#include "kernels/cpu/lane_sums-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class F>
constexpr bool kSignedCodes = F::kSignBits != 0;

// ---- weights ----

template <class F>
constexpr float kLargestInt8Weight = kSignedCodes<F> ? 255.0f : 127.0f;

// The largest lane of each of four vectors.
template <class DF>
HWY_INLINE auto largest_of_four(DF df, hn::Vec<DF> (&v)[4]) {
  const auto max = [](auto x, auto y) KV_ATTR { return hn::Max(x, y); };
  const auto join = [&](auto self, auto d, auto x) KV_INLINE {
    if constexpr (hn::MaxLanes(decltype(d)()) <= 4) {
      return x;
    } else {
      const hn::Half<decltype(d)> half;
      return self(self, half, hn::Max(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
    }
  };
  return join(join, df, join_four(df, v[0], v[1], v[2], v[3], max));
}

// The weights of blocks first … first + 3 are probabilities p [kTileRows] of one query times scales.
struct WeightBlocks {
  const float *p, *scale;
  WeightBlocks(const float* probabilities, const ScaleColumns& scales, int first)
      : p(probabilities), scale(scales.at(first, 0)) {}
  template <class DF>
  HWY_INLINE hn::Vec<DF> weight(DF df, int block, int row) const {
    return hn::Mul(hn::Load(df, p + row), hn::Load(df, scale + block * kTileRows + row));
  }
};

// Their steps, and what makes codes of them.
template <class F>
HWY_INLINE void find_steps(const WeightBlocks& blocks, float* step, float* inverse) {
  const hn::CappedTag<float, 16> df;
  const hn::CappedTag<float, 4> four;
  constexpr float kLargest = kLargestInt8Weight<F>;
  hn::Vec<decltype(df)> top[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  for (int row = 0; row < kTileRows; row += static_cast<int>(hn::Lanes(df))) {
    for (int b = 0; b < 4; ++b) {
      const auto weight = blocks.weight(df, b, row);
      top[b] = hn::Max(top[b], kSignedCodes<F> ? weight : hn::Abs(weight));
    }
  }
  const auto largest = largest_of_four(df, top);
  const auto positive = hn::Gt(largest, hn::Zero(four));
  hn::StoreU(hn::IfThenElseZero(positive, hn::Div(hn::Set(four, kLargest), largest)), four, inverse);
  hn::StoreU(hn::Mul(largest, hn::Set(four, 1.0f / kLargest)), four, step);
}

// Their quads, and starts.
template <class F>
HWY_INLINE void code_four_blocks(const WeightBlocks& blocks, const float* inverse, int32_t* quad,
                                 int32_t* start) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  constexpr int kQuads = Int8Weights::kQuads;
  const int lanes = static_cast<int>(hn::Lanes(df));
  hn::Vec<decltype(di)> sum[4] = {hn::Zero(di), hn::Zero(di), hn::Zero(di), hn::Zero(di)};
  for (int i = 0; i < kQuads; i += lanes) {
    hn::Vec<decltype(di)> word[4];
    for (int b = 0; b < 4; ++b) {
      const auto code = [&](int k) KV_INLINE {
        return rounded_bits(df, blocks.weight(df, b, k * kQuads + i), hn::Set(df, inverse[b]));
      };
      word[b] = code(3);
      for (int k = 2; k >= 0; --k) word[b] = hn::OrAnd(hn::ShiftLeft<8>(word[b]), code(k), hn::Set(di, 0xff));
      if constexpr (!kSignedCodes<F>)
        sum[b] = add_quad_products(di, hn::Set(di, 0x01010101), word[b], sum[b]);
    }
    hn::StoreInterleaved4(word[0], word[1], word[2], word[3], di, quad + 4 * i);
  }
  if constexpr (!kSignedCodes<F>) {
    const hn::CappedTag<int32_t, 4> sums;
    const auto codes = sums_of_four(di, sum[0], sum[1], sum[2], sum[3]);
    hn::StoreU(hn::Mul(codes, hn::Set(sums, -kMiddle<F::kBits>)), sums, start);
  }
}

// Probabilities p [kQueries, count], kScoreStride apart, to which zeros are added, times scales -> weights. Steps of all
// queries come first: the chain of answers that one waits for overlaps with the others'.
template <class F, int kQueries>
HWY_INLINE void code_int8_weights(const float* p, const ScaleColumns& scales, int count, int blocks,
                                  Int8Weights& out) {
  const hn::CappedTag<float, 16> df;
  HWY_ALIGN float rows[kQueries][kTileRows], inverse[kQueries][4];
  for (int r = 0; r < kQueries; ++r) {
    for (int i = 0; i < kTileRows; i += static_cast<int>(hn::Lanes(df)))
      hn::Store(load_valid(df, p + r * kScoreStride, i, count), df, rows[r] + i);
  }
  for (int b = 0; b < blocks; b += 4) {
    for (int r = 0; r < kQueries; ++r)
      find_steps<F>(WeightBlocks(rows[r], scales, b), out.step + r * kMaxBlocks + b, inverse[r]);
    for (int r = 0; r < kQueries; ++r) {
      code_four_blocks<F>(WeightBlocks(rows[r], scales, b), inverse[r],
                          out.quad + r * Int8Weights::kStride + b * Int8Weights::kQuads,
                          out.start + r * kMaxBlocks + b);
    }
  }
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
HWY_INLINE void sum_quads(DI di, const std::byte* const* rows, int w, const Int8Weights& weights,
                          Prefetcher& prefetcher, hn::Vec<DI> (&acc)[kQueries][4]) {
  constexpr int kQuads = Int8Weights::kQuads;
  const int group = w / kWordsPerBlock<F> & -4;  // its first block
  const int32_t *quad = weights.quad + group * kQuads, *first = weights.start + group;
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
      const auto some = hn::LoadDup128(di, quad + kQuery * Int8Weights::kStride);
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
HWY_NOINLINE void add_int8_values(DI di, const std::byte* const* rows, const Int8Weights& weights,
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
  work.prefetcher.begin_part(int64_t{query_blocks(queries)} * Int8Weights::kQuads * vectors);
  for_query_blocks(queries, [&](auto some, int r) KV_ATTR {
    constexpr int kQueries = decltype(some)::value;
    code_int8_weights<F, kQueries>(p + r * kScoreStride, s.columns, count, blocks, s.int8_weights);
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
