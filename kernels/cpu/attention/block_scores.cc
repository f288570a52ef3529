// Scores of rows of codes in blocks (q8_0, q4_0), compiled once for each instruction set.
//
// Words of four rows are transposed first, so that one accumulator holds the sums of four rows over each 128-bit
// block, and no query needs a sum across lanes before the scales:
//
//   in      row 0   w3 w2 w1 w0         out     word 0   r3 r2 r1 r0      (in each 128-bit block: w0 of row 3, 2, 1, 0)
//           row 1   w3 w2 w1 w0                 word 1   r3 r2 r1 r0
//           row 2   w3 w2 w1 w0                 word 2   r3 r2 r1 r0
//           row 3   w3 w2 w1 w0                 word 3   r3 r2 r1 r0
//
// A query's codes are spread over the rows' lanes for that: each pair of 16-bit codes lies four times, as [vectors,
// planes, words of a 128-bit block, kPack, lanes].
#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/block_scores.cc"
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

// ---- queries ----

// Each lane of the 128-bit blocks of v in all four lanes of its block -> to [4, kPack, lanes], whose end it returns.
template <int kPack, class DI>
HWY_INLINE int32_t* store_spread(DI di, hn::Vec<DI> v, int32_t* to) {
  const hn::Vec<DI> spread[4] = {hn::Broadcast<0>(v), hn::Broadcast<1>(v), hn::Broadcast<2>(v),
                                 hn::Broadcast<3>(v)};
  for (const auto& x : spread) {
    for (int copy = 0; copy < kPack; ++copy, to += hn::Lanes(di)) hn::StoreU(x, di, to);
  }
  return to;
}

// The sum of each 128-bit block in all its lanes.
template <class DI>
HWY_INLINE hn::Vec<DI> sum_in_blocks(DI /*di*/, hn::Vec<DI> v) {
  const auto pairs = hn::Add(v, hn::Shuffle2301(v));
  return hn::Add(pairs, hn::Shuffle1032(pairs));
}

// Query r's elements x [head_dim], of magnitudes up to `largest` -> its codes.
template <class F, int kPack, class DI>
void code_block_query(DI, const float* x, float largest, int head_dim, int r, CodedQueries& out) {
  const typename OneRow<DI, kPack>::Tag di;
  const hn::RebindToFloat<decltype(di)> df;
  const hn::RepartitionToNarrow<decltype(di)> d16;
  constexpr int kBits = F::kBits;
  const int lanes = static_cast<int>(hn::Lanes(di)), words = words_of(kBits, head_dim);
  const float top = largest_query_code(kBits, head_dim);
  const float inverse = largest > 0.0f ? top / largest : 0.0f;
  out.step[r] = largest / top;
  HWY_ALIGN float ordered[kMaxHeadDim];  // [slots, words]
  for (int slot = 0; slot < kSlots<kBits>; ++slot) {
    for (int w = 0; w < words; ++w) ordered[slot * words + w] = x[F::element(head_dim, w, slot)];
  }
  const auto scale = hn::Set(df, inverse);
  auto* q = reinterpret_cast<int32_t*>(out.q + r * 4 * kPack * head_dim);
  int32_t* first = out.start + r * CodedQueries::kStartStride;
  for (int w = 0; w < words; w += lanes) {
    auto sum = hn::Zero(di);
    for (int p = 0; p < kPlanes<kBits>; ++p) {
      const auto low = rounded_bits(df, hn::LoadU(df, ordered + p * words + w), scale);
      const auto high = rounded_bits(df, hn::LoadU(df, ordered + (p + kPlanes<kBits>)*words + w), scale);
      const auto pair = pair_up(di, low, high);
      q = store_spread<kPack>(di, pair, q);
      sum = add_products(di, hn::BitCast(d16, pair), hn::Set(d16, 1), sum);
    }
    const auto start = hn::Mul(sum, hn::Set(di, -kMiddle<kBits>));
    for (int copy = 0; copy < kPack; ++copy, first += lanes) hn::StoreU(sum_in_blocks(di, start), di, first);
  }
}

// ---- rows ----

// The indices of scales in a group for the lanes of words of four rows, or of eight with two rows a vector:
// lane i of each 128-bit block belongs to row i.
template <class F, int kPack, class DI>
HWY_INLINE hn::Vec<DI> scale_places(DI di, int group_blocks) {
  const int row_lanes = static_cast<int>(hn::Lanes(di)) / kPack;
  const auto lane = hn::Iota(di, 0);
  const auto second = hn::VecFromMask(di, hn::Gt(lane, hn::Set(di, row_lanes - 1)));  // -1: of the second row
  const auto row = hn::Sub(hn::And(lane, hn::Set(di, 3)), hn::ShiftLeft<2>(second));
  const auto word = hn::Add(lane, hn::And(second, hn::Set(di, -row_lanes)));
  return hn::Add(hn::Mul(row, hn::Set(di, group_blocks)), hn::ShiftRight<kBlockShift<F>>(word));
}

// The numbers at those places.
template <class DF>
HWY_INLINE hn::Vec<DF> look_up(DF df, const float* from, hn::Vec<hn::RebindToSigned<DF>> places) {
  if constexpr (hn::MaxLanes(DF()) == 16) {
    return hn::TableLookupLanes(hn::LoadU(df, from), hn::IndicesFromVec(df, places));
  } else {
    return hn::GatherIndex(df, from, places);
  }
}

// Adds lane i of all 128-bit blocks to the sum of row i. With two rows in a vector, the lower half belongs to
// rows 0-3 and the upper half to rows 4-7.
template <int kPack, class D>
HWY_INLINE void store_rows(D d, hn::Vec<D> v, float* sums) {
  const hn::CappedTag<float, 4> four;
  const auto store_half = [&](auto part, auto half, float* at) KV_INLINE {
    hn::StoreU(hn::BitCast(four, sum_of_blocks(part, half)), four, at);
  };
  if constexpr (kPack == 1) {
    store_half(d, v, sums);
  } else {
    const hn::Half<D> half;
    store_half(half, hn::LowerHalf(half, v), sums);
    store_half(half, hn::UpperHalf(half, v), sums + 4);
  }
}

// All queries against keys whose scales differ from block to block -> scores, in steps of each query. What is left of
// sums across lanes is done at the end, where no products wait for it.
template <class F, int kPack, class DI>
HWY_NOINLINE void score_block_rows(DI di, const std::byte* const* keys, int count, const BlockScales& scales,
                                   const CodedQueries& coded, int queries, int vectors,
                                   Prefetcher& shared_prefetcher, float* scores) {
  constexpr int kCount = kPlanes<F::kBits>;
  const hn::RebindToFloat<DI> df;
  const hn::RepartitionToNarrow<DI> d16;
  const int lanes = static_cast<int>(hn::Lanes(di));
  Prefetcher prefetcher = shared_prefetcher;  // a local one can live in registers
  const int stride = vectors * kCount * 8 * lanes;
  const auto places = scale_places<F, kPack>(di, scales.group_blocks);
  HWY_ALIGN float open[kQueryBlock][kTileRows / 4][hn::MaxLanes(df)];
  for (int j = 0; j < count; j += 4 * kPack) {
    const int16_t* q = coded.q;
    for (int v = 0; v < vectors; ++v, q += kCount * 8 * lanes) {
      prefetcher.step();
      hn::Vec<decltype(d16)> words[4], planes[kCount][4];
      for (int i = 0; i < 4; ++i)
        words[i] = hn::BitCast(d16, load_rows<F, kPack>(di, keys + j + i, 4, v * lanes));
      transpose_words(d16, words);
      unroll<kCount>([&](auto index) KV_INLINE {
        constexpr int kPlane = decltype(index)::value;
        for (int i = 0; i < 4; ++i) planes[kPlane][i] = plane<F::kBits, kPlane>(d16, words[i]);
      });
      const auto scale = look_up(df, scales.at(j, v * lanes / kWordsPerBlock<F>), places);
      for (int r = 0; r < queries; ++r) {
        hn::Vec<DI> acc[2] = {hn::LoadU(di, coded.start + r * CodedQueries::kStartStride + v * lanes),
                              hn::Zero(di)};
        const int16_t* now = q + r * stride;
        for (int p = 0; p < kCount; ++p) {
          for (int i = 0; i < 4; ++i, now += 2 * lanes)
            acc[i % 2] = add_products(di, planes[p][i], hn::LoadU(d16, now), acc[i % 2]);
        }
        const auto sums = hn::ConvertTo(df, hn::Add(acc[0], acc[1]));
        float* at = open[r][j / (4 * kPack)];
        hn::Store(v == 0 ? hn::Mul(sums, scale) : hn::MulAdd(sums, scale, hn::Load(df, at)), df, at);
      }
    }
  }
  for (int r = 0; r < queries; ++r) {
    for (int j = 0; j < count; j += 4 * kPack)
      store_rows<kPack>(df, hn::Load(df, open[r][j / (4 * kPack)]), scores + r * kScoreStride + j);
  }
  shared_prefetcher = prefetcher;
}

template <class F, int kPack, class DI>
bool score_blocks_of(DI di, const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  CodeScratch& s = work.scratch;
  const int count = run.count, queries = static_cast<int>(work.task.queries);
  if (!load_block_scales(side.meta + run.first, count, work.head_dim / kGgmlBlock, s.blocks)) return false;
  code_queries(run.k, work, [&](const float* q, float largest, int r) KV_ATTR {
    code_block_query<F, kPack>(di, q, largest, work.head_dim, r, work.queries);
  });
  const int vectors = words_of(F::kBits, work.head_dim) * kPack / static_cast<int>(hn::Lanes(di));
  work.prefetcher.begin_part(int64_t{(count + 4 * kPack - 1) / (4 * kPack)} * vectors);
  const std::byte* scratch[kPaddedRows];
  score_block_rows<F, kPack>(di, pad_rows(side.row + run.first, count, scratch), count, s.blocks,
                             work.queries, queries, vectors, work.prefetcher, scores);
  const hn::CappedTag<float, 16> df;
  for (int r = 0; r < queries; ++r) {
    float* at = scores + r * kScoreStride;
    const auto step = hn::Set(df, work.queries.step[r]);
    for (int j = 0; j < count; j += static_cast<int>(hn::Lanes(df)))
      hn::StoreU(hn::Mul(hn::LoadU(df, at + j), step), df, at + j);
  }
  return true;
}

bool score_blocks(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  bool done = false;
  with_blocks(run.k, work.head_dim, [&](auto format, auto di, auto pack) KV_ATTR {
    done = score_blocks_of<decltype(format), decltype(pack)::value>(di, side, run, work, scores);
  });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
