// Weighted values of rows of interleaved codes with a scale a row, compiled once for each instruction set.
//
// A vector holds words of one row, or, where rows are shorter than it, of two rows or of four (a *pack*). Vectors of
// two packs are joined (JoinedPair), so that two rows' codes meet two rows' weights in one multiply-add:
//
//   4 rows a vector     vector a   row 6 | row 4 | row 2 | row 0      pair i of rows: 2i from a, 2i + 1 from b
//                       vector b   row 7 | row 5 | row 3 | row 1
#include <algorithm>

#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/token_values.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/interleaved_codes-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Probabilities p [kQueries, count], kScoreStride apart, of rows with these scales -> out.
template <int kBits, int kQueries>
HWY_INLINE void code_weights(const float* p, const RowScales& scales, bool affine, int count,
                             RowWeights& out) {
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
    auto* codes = reinterpret_cast<uint16_t*>(out.pair + r * RowWeights::kStride);
    auto sum = hn::Zero(di);
    for (int j = 0; j < padded; j += lanes) {
      const auto code = rounded_bits(df, hn::Load(df, weight[r] + j), inverse);
      hn::StoreU(hn::TruncateTo(d16, hn::BitCast(hn::RebindToUnsigned<decltype(di)>(), code)), d16,
                 codes + j);
      sum = hn::Add(sum, code);
    }
    const auto added = hn::Mul(hn::Set(di, padded / lanes), hn::BitCast(di, hn::Set(df, kRoundingShift)));
    zero[r] = hn::MulAdd(hn::ConvertTo(df, hn::Sub(sum, added)),
                         hn::Set(df, static_cast<float>(-kMiddle<kBits>) * out.step[r]), zero[r]);
  }
  sums_of_lanes<kQueries>(df, zero, out.zero);
}

// Calls with vectors of words, and with the rows that a vector holds: 1, 2 or 4.
template <class Call>
HWY_INLINE void with_packs(int words, const Call& call) {
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

// Words from `w` on of kPack rows: row[0], row[2], …
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
    return load_row_interleaved<2>(di, row, 0);
  }
}

// number[0] in the lanes of a pack's first row, number[1] in those of the second, …
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

template <int kPack, class DI>
HWY_INLINE JoinedPair<DI> load_pair(DI di, const std::byte* const* rows, int w) {
  return join_halves(di, load_pack<kPack>(di, rows, w), load_pack<kPack>(di, rows + 1, w));
}

// Adds the rows' weighted values to sum [kQueries, head_dim], kWide vectors of words at a time.
template <int kBits, int kPack, int kWide, int kQueries, class DI>
HWY_NOINLINE void add_values(DI di, const std::byte* const* rows, int pairs, const RowWeights& weights,
                             int head_dim, Prefetcher& shared_prefetcher, float* sum) {
  const hn::RebindToFloat<DI> df;
  const hn::RepartitionToNarrow<DI> d16;
  constexpr int kPass = kSlotsAtOnce<kBits, DI, kQueries>, kPasses = kSlots<kBits> / kPass;
  constexpr bool kKeep = kPasses > 2;  // rows that several passes read are joined once
  static_assert(!kKeep || kWide == 1);
  const int words = words_of(kBits, head_dim), lanes = static_cast<int>(hn::Lanes(di));
  Prefetcher prefetcher = shared_prefetcher;  // a local one can live in registers
  HWY_ALIGN int16_t kept[kKeep ? kTileRows / 2 : 1][2][hn::MaxLanes(d16)];
  for (int w = 0; w < words; w += kWide * lanes) {
    for (int i = 0; kKeep && i < pairs; i += kPack) {
      const auto joined = load_pair<kPack>(di, rows + 2 * i, w);
      hn::Store(joined.low, d16, kept[i / kPack][0]);
      hn::Store(joined.high, d16, kept[i / kPack][1]);
    }
    const auto load = [&](int i, int x) KV_INLINE {
      if constexpr (kKeep) {
        return JoinedPair<DI>{hn::Load(d16, kept[i / kPack][0]), hn::Load(d16, kept[i / kPack][1])};
      } else {
        return load_pair<kPack>(di, rows + 2 * i, w + x * lanes);
      }
    };
    unroll<kPasses>([&](auto index) KV_INLINE {
      constexpr int kFirst = kPass * decltype(index)::value;
      hn::Vec<DI> acc[kQueries][kWide][kPass];
      sum_slots<kBits, kPack, kFirst>(
          di, pairs, prefetcher, acc, [&](int) KV_INLINE { return hn::Zero(di); },
          [&](int r, int i)
              KV_INLINE { return spread_over_pack<kPack>(di, weights.pair + r * RowWeights::kStride + i); },
          load);
      HWY_UNROLL(4)  // constant indices, or GCC keeps the sums in memory: 1.6 times the function's time
      for (int r = 0; r < kQueries; ++r) {
        const auto step = hn::Set(df, weights.step[r]), zero = hn::Set(df, weights.zero[r]);
        for (int x = 0; x < kWide; ++x) {
          float* at = sum + r * head_dim + kFirst * words + w + x * lanes;
          for (int slot = 0; slot < kPass; slot += kPack, at += kPack * words) {
            const auto exact = hn::ConvertTo(df, join_sums<kPack>(di, acc[r][x] + slot));
            hn::StoreU(hn::Add(hn::LoadU(df, at), hn::MulAdd(exact, step, zero)), df, at);
          }
        }
      }
    });
  }
  shared_prefetcher = prefetcher;
}

// Calls with how many vectors of a row of `words` are worked on at once. Those of one query are as many as there are
// registers for, so that rows are read from end to end, as memory delivers them.
template <int kBits, int kPack, int kQueries, class DI, class Call>
HWY_INLINE void with_wide([[maybe_unused]] DI di, [[maybe_unused]] int words, const Call& call) {
  constexpr int kLanes = hn::MaxLanes(DI()), kMost = kSumsAtOnce<DI> / kSlotsAtOnce<kBits, DI, kQueries>;
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

template <int kBits>
bool add_tokens_of(const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  CodeScratch& s = work.scratch;
  if (!load_row_scales(side.meta + run.first, run.count, run.v.affine, kMiddle<kBits>, s.rows)) return false;
  const std::byte* scratch[kPaddedRows];
  const std::byte* const* rows = pad_rows(side.row + run.first, run.count, scratch);
  const int queries = static_cast<int>(work.task.queries), pairs = (run.count + 1) / 2;
  const int words = words_of(kBits, work.head_dim);
  with_packs(words, [&](auto di, auto pack) KV_ATTR {
    constexpr int kPack = decltype(pack)::value;
    int64_t steps = 0;
    for_query_blocks(queries, [&](auto some, int) KV_ATTR {
      constexpr int kQueries = decltype(some)::value;
      with_wide<kBits, kPack, kQueries>(di, words, [&](auto wide) KV_ATTR {
        steps += value_steps<kBits, kPack, kQueries>(di, pairs, words) / decltype(wide)::value;
      });
    });
    work.prefetcher.begin_part(steps);
    for_query_blocks(queries, [&](auto some, int r) KV_ATTR {
      constexpr int kQueries = decltype(some)::value;
      code_weights<kBits, kQueries>(p + r * kScoreStride, s.rows, run.v.affine, run.count, s.row_weights);
      with_wide<kBits, kPack, kQueries>(di, words, [&](auto wide) KV_ATTR {
        add_values<kBits, kPack, decltype(wide)::value, kQueries>(di, rows, pairs, s.row_weights,
                                                                  work.head_dim, work.prefetcher,
                                                                  work.task.sum + int64_t{r} * work.head_dim);
      });
    });
  });
  return true;
}

bool add_tokens(const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  bool done = false;
  with_bits(run.v.bits,
            [&](auto bits) KV_ATTR { done = add_tokens_of<decltype(bits)::value>(side, run, work, p); });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
