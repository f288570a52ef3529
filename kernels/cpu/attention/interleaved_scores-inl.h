// Scores of rows of interleaved codes: queries as codes, and sums of products.
//
// A vector holds the same 128 bits of as many rows as it has blocks of 128 bits, whatever a row's length, and meets
// those 128 bits of a query in all its blocks. Four such vectors are worked on together (AVX-512: 16 rows), so that
// the sums within their blocks come out in the order of the rows, with no sum across a whole vector:
//
//   vector 0     row 12 | row 8 | row 4 | row 0        its lanes' sums  ->  lane 0 of each block
//   vector 1     row 13 | row 9 | row 5 | row 1                             lane 1
//   vector 2     row 14 | row 10| row 6 | row 2                             lane 2
//   vector 3     row 15 | row 11| row 7 | row 3                             lane 3
//
// A query's codes lie as [planes, words] pairs of 16 bits: pair (p, w) has what meets plane p of word w.
//
// Private to kernels/cpu; compiled once a target.
#if defined(KV_INTERLEAVED_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_INTERLEAVED_SCORES_INL_H_
#undef KV_INTERLEAVED_SCORES_INL_H_
#else
#define KV_INTERLEAVED_SCORES_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attention/interleaved_codes-inl.h"
#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/lane_sums-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Query r's elements x [head_dim], of magnitudes up to `largest` -> its codes; their sums -> what is returned. The
// halves of a pair are half a row apart.
template <int kBits>
HWY_INLINE hn::Vec<hn::CappedTag<int32_t, 16>> code_interleaved_query(const float* x, float largest,
                                                                      int head_dim, int r,
                                                                      CodedQueries& out) {
  const hn::CappedTag<int32_t, 16> di;
  const hn::RebindToFloat<decltype(di)> df;
  const hn::RepartitionToNarrow<decltype(di)> d16;
  const int half = head_dim / 2;
  const float top = largest_query_code(kBits, head_dim);
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

// Rows that are scored together.
template <class DI>
constexpr int kRowsTogether = static_cast<int>(hn::MaxLanes(DI()));

// Announces the scores of a run to the prefetcher.
template <int kBits>
void begin_scores(int count, const CodeWork& work) {
  constexpr int kTogether = kRowsTogether<hn::ScalableTag<int32_t>>;
  const int blocks = work.head_dim * kBits / 128;
  work.prefetcher.begin_part(int64_t{(count + kTogether - 1) / kTogether} * blocks *
                             query_blocks(static_cast<int>(work.task.queries)));
}

// kRowsTogether rows of whole vectors against query r -> their sums of products. Row-contiguous: four rows at a time,
// a whole vector of each, which is about the order of memory.
template <int kBits, class DI>
HWY_INLINE hn::Vec<DI> sum_contiguous(DI di, const std::byte* const* keys, const CodedQueries& coded, int r,
                                      int words, Prefetcher& prefetcher) {
  const hn::RepartitionToNarrow<DI> d16;
  constexpr int kLanes = kRowsTogether<DI>;
  const int16_t* q = coded.q + r * CodedQueries::kStride;
  hn::Vec<DI> of_four[kLanes / 4];
  for (auto& sums : of_four) {
    hn::Vec<DI> acc[4];
    for (auto& x : acc) x = hn::Zero(di);
    for (int w = 0; w < words; w += kLanes) {
      prefetcher.step();
      for (int i = 0; i < 4; ++i) {
        const auto row = hn::BitCast(d16, hn::LoadU(di, reinterpret_cast<const int32_t*>(keys[i]) + w));
        unroll<kPlanes<kBits>>([&](auto index) KV_INLINE {
          constexpr int kPlane = decltype(index)::value;
          const auto query = hn::LoadU(d16, q + 2 * (kPlane * words + w));
          acc[i] = add_products(di, plane<kBits, kPlane>(d16, row), query, acc[i]);
        });
      }
    }
    sums = sums_in_blocks(di, acc[0], acc[1], acc[2], acc[3]);
    keys += 4;
  }
  return join_sums<kLanes / 4>(di, of_four);
}

// kRowsTogether rows against queries r … r + kQueries - 1 -> their sums of products.
template <int kBits, int kQueries, class DI>
HWY_INLINE void sum_products(DI di, const std::byte* const* keys, const CodedQueries& coded, int r, int words,
                             Prefetcher& prefetcher, hn::Vec<DI> (&sums)[kQueries]) {
  if constexpr (kQueries == 1) {
    if (words % kRowsTogether<DI> == 0) {
      sums[0] = sum_contiguous<kBits>(di, keys, coded, r, words, prefetcher);
      return;
    }
  }
  const hn::RepartitionToNarrow<DI> d16;
  constexpr int kTogether = kSumsAtOnce<DI> / 4;  // rows whose sums there are registers for
  const int64_t plane_bytes = int64_t{words} * 4;
  hn::Vec<DI> acc[kQueries][4];
  unroll<4 / kTogether>([&](auto pass) KV_INLINE {
    constexpr int kFirst = decltype(pass)::value * kTogether;
    hn::Vec<DI> sum[kQueries][kTogether];
    for (auto& query : sum) {
      for (auto& x : query) x = hn::Zero(di);
    }
    const auto* q = reinterpret_cast<const std::byte*>(coded.q + r * CodedQueries::kStride);
    for (int w = 0; w < words; w += 4, q += 16) {
      if (kFirst == 0) prefetcher.step();
      hn::Vec<decltype(d16)> row[kTogether];
      for (int g = 0; g < kTogether; ++g)
        row[g] = hn::BitCast(d16, load_row_interleaved<4>(di, keys + kFirst + g, 4 * w));
      unroll<kPlanes<kBits>>([&](auto index) KV_INLINE {
        constexpr int kPlane = decltype(index)::value;
        hn::Vec<decltype(d16)> codes[kTogether];
        for (int g = 0; g < kTogether; ++g) codes[g] = plane<kBits, kPlane>(d16, row[g]);
        for (int i = 0; i < kQueries; ++i) {
          const auto query =
              hn::BitCast(d16, broadcast_128(di, q + kPlane * plane_bytes + i * CodedQueries::kStride * 2));
          for (int g = 0; g < kTogether; ++g) sum[i][g] = add_products(di, codes[g], query, sum[i][g]);
        }
      });
    }
    for (int i = 0; i < kQueries; ++i) {
      for (int g = 0; g < kTogether; ++g) acc[i][kFirst + g] = sum[i][g];
    }
  });
  for (int i = 0; i < kQueries; ++i) sums[i] = sums_in_blocks(di, acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
}

// Scores of queries r … r + kQueries - 1 of `count` keys: finish(query, j, sums) of the sums of products of the rows
// from j on, as integers. Looks at whole steps of kRowsTogether.
template <int kBits, int kQueries, class Finish>
HWY_INLINE void score_rows(const std::byte* const* keys, int count, const CodeWork& work, int r,
                           float* scores, const Finish& finish) {
  const hn::ScalableTag<int32_t> di;
  const hn::RebindToFloat<decltype(di)> df;
  Prefetcher prefetcher = work.prefetcher;  // a local one can live in registers
  const int words = words_of(kBits, work.head_dim);
  for (int j = 0; j < count; j += kRowsTogether<decltype(di)>) {
    hn::Vec<decltype(di)> sums[kQueries];
    sum_products<kBits, kQueries>(di, keys + j, work.queries, r, words, prefetcher, sums);
    for (int i = 0; i < kQueries; ++i)
      hn::StoreU(finish(r + i, j, sums[i]), df, scores + (r + i) * kScoreStride + j);
  }
  work.prefetcher = prefetcher;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
