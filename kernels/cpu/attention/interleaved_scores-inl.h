// Scores of rows of interleaved codes: queries as codes, and sums of products. Keys lie in lanes (key_lanes-inl.h).
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
#include "kernels/cpu/attention/key_lanes-inl.h"
#include "kernels/cpu/attributes-inl.h"

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

// kRowsTogether rows against queries r … r + kQueries - 1 -> their sums of products.
template <int kBits, int kWords, int kQueries, class DI, class Words>
HWY_INLINE void sum_products(DI di, const std::byte* const* keys, const CodedQueries& coded, int r,
                             Words words, Prefetcher& prefetcher, hn::Vec<DI> (&sums)[kQueries]) {
  constexpr int kChains = 4 / kQueries;  // of answers that one waits for
  const hn::RepartitionToNarrow<DI> d16;
  hn::Vec<DI> acc[kQueries][kChains];
  for (auto& query : acc) {
    for (auto& x : query) x = hn::Zero(di);
  }
  const auto load = [](auto d, const std::byte* row, int word)
                        KV_INLINE { return hn::LoadU(d, reinterpret_cast<const int32_t*>(row) + word); };
  const auto* q = reinterpret_cast<const int32_t*>(coded.q + r * CodedQueries::kStride);
  for (int w = 0; w < words; w += kWords, q += kWords) {
    hn::Vec<DI> now[kWords];
    load_key_words(di, keys, w, now, load);
    unroll<kWords>([&](auto word) KV_INLINE {
      constexpr int kWord = decltype(word)::value;
      if constexpr (kWord % 4 == 0) prefetcher.step();
      unroll<kPlanes<kBits>>([&](auto index) KV_INLINE {
        constexpr int kPlane = decltype(index)::value;
        const auto codes = hn::BitCast(di, plane<kBits, kPlane>(d16, hn::BitCast(d16, now[kWord])));
        for (int i = 0; i < kQueries; ++i) {
          auto& sum = acc[i][kPlane % kChains];
          sum = add_products_of_pair(di, codes, q + kPlane * words + kWord + i * (CodedQueries::kStride / 2),
                                     sum);
        }
      });
    });
  }
  for (int i = 0; i < kQueries; ++i) {
    sums[i] = acc[i][0];
    for (int chain = 1; chain < kChains; ++chain) sums[i] = hn::Add(sums[i], acc[i][chain]);
  }
}

// Calls call(words, some) with the words of a row, a constant where many planes would need many addresses, and with how many are
// loaded at once.
template <int kBits, class Call>
HWY_INLINE void with_row_words(int words, const Call& call) {
  constexpr std::integral_constant<int, 16> sixteen;
  constexpr std::integral_constant<int, 8> eight;
  constexpr bool kWide = hn::MaxLanes(hn::ScalableTag<int32_t>()) == 16;
  if constexpr (kBits < 8) {
    if (words == 16) return call(sixteen, std::integral_constant < int, kWide ? 16 : 4 > ());
    if (words == 8) return call(eight, std::integral_constant < int, kWide ? 8 : 4 > ());
  }
  with_key_words<4>(words, [&](auto some) KV_ATTR { call(words, some); });
}

// Scores of queries r … r + kQueries - 1 of `count` keys: finish(query, j, sums) of the sums of products of the rows
// from j on, as integers. Looks at whole steps of kRowsTogether.
template <int kBits, int kQueries, class Finish>
HWY_INLINE void score_rows(const std::byte* const* keys, int count, const CodeWork& work, int r,
                           float* scores, const Finish& finish) {
  const hn::ScalableTag<int32_t> di;
  const hn::RebindToFloat<decltype(di)> df;
  Prefetcher prefetcher = work.prefetcher;  // a local one can live in registers
  with_row_words<kBits>(words_of(kBits, work.head_dim), [&](auto words, auto some) KV_ATTR {
    for (int j = 0; j < count; j += kRowsTogether<decltype(di)>) {
      hn::Vec<decltype(di)> sums[kQueries];
      sum_products<kBits, decltype(some)::value>(di, keys + j, work.queries, r, words, prefetcher, sums);
      for (int i = 0; i < kQueries; ++i)
        hn::StoreU(finish(r + i, j, sums[i]), df, scores + (r + i) * kScoreStride + j);
    }
  });
  work.prefetcher = prefetcher;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
