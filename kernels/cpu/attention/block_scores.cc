// Scores of rows of codes in blocks (q8_0, q4_0, integer levels), compiled once for each instruction set. A query has a
// step a block, and codes of 16 bits; or of 8, as ggml's products of blocks have them.
//
// Keys lie in lanes (key_lanes-inl.h), so that a block's scales of those rows are a vector.
#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/block_scores.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/int8_codes-inl.h"
#include "kernels/cpu/attention/minima-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- queries ----

// Codes of a query's block, a word of them for each plane of each word of the row: [planes, words of a block].
template <class F, bool kInt8>
struct QueryBlock {
  static constexpr int kPlaneCount = kInt8 ? kBytePlanes<F::kBits> : kPlanes<F::kBits>;
  static constexpr int kRowWords = kWordsPerBlock<F>;
  static constexpr int kWords = kPlaneCount * kRowWords;
  static constexpr float kLargest = kInt8 ? 127.0f : 32767.0f;
};

// A block's elements x times `inverse` -> 8-bit codes in their order; their sum.
template <class F>
HWY_INLINE int32_t code_block_of(std::true_type /*int8*/, const float* x, float inverse, int32_t* words) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int8_t, decltype(df)> narrow;
  auto* codes = reinterpret_cast<int8_t*>(words);
  auto sum = hn::Zero(di);
  for (int i = 0; i < kGgmlBlock; i += static_cast<int>(hn::Lanes(df))) {
    const auto code = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), hn::Set(df, inverse)));
    hn::StoreU(hn::DemoteTo(narrow, code), narrow, codes + i);
    sum = hn::Add(sum, code);
  }
  return hn::GetLane(hn::SumOfLanes(di, sum));
}

// The same as 16-bit codes, in the order of planes.
template <class F>
HWY_INLINE int32_t code_block_of(std::false_type /*int8*/, const float* x, float inverse, int32_t* words) {
  using Q = QueryBlock<F, false>;
  int32_t sum = 0;
  for (int p = 0; p < Q::kPlaneCount; ++p) {
    for (int w = 0; w < Q::kRowWords; ++w) {
      const auto code = [&](int slot) KV_INLINE {
        return static_cast<int32_t>(std::lrint(x[F::element(kGgmlBlock, w, slot)] * inverse));
      };
      const int32_t low = code(p), high = code(p + Q::kPlaneCount);
      sum += low + high;
      *words++ =
          static_cast<int32_t>((static_cast<uint32_t>(high) << 16) | (static_cast<uint32_t>(low) & 0xffffu));
    }
  }
  return sum;
}

// Query r's elements x [head_dim] -> codes, starts and steps block by block.
template <class F, bool kInt8>
void code_query_blocks(const float* x, int head_dim, int r, CodedQueries& out) {
  using Q = QueryBlock<F, kInt8>;
  auto* words = reinterpret_cast<int32_t*>(out.q) + r * CodedQueries::kStride / 2;
  for (int b = 0; b < head_dim / kGgmlBlock; ++b, x += kGgmlBlock, words += Q::kWords) {
    const float largest = largest_magnitude(x, kGgmlBlock);
    const float inverse = largest > 0.0f ? Q::kLargest / largest : 0.0f;
    const int at = r * CodedQueries::kStartStride + b;
    out.block_step[at] = largest * (1.0f / Q::kLargest);
    out.start[at] = -kMiddle<F::kBits> * code_block_of<F>(std::bool_constant<kInt8>(), x, inverse, words);
  }
}

// ---- rows ----

// Adds the sums of a query's words q times codes, from `start` on, in steps, to its scores; the first ones are stored.
template <bool kInt8, int kCount, class DI>
HWY_INLINE void add_scores(DI di, const hn::Vec<DI> (&codes)[kCount], const int32_t* q, int32_t start,
                           hn::Vec<hn::RebindToFloat<DI>> steps, bool first, float* scores) {
  const hn::RebindToFloat<DI> df;
  hn::Vec<DI> sum = hn::Set(di, start);
  if constexpr (kInt8) {
    for (int i = 0; i < kCount; ++i) sum = add_quad_products_of_word(di, codes[i], q + i, sum);
  } else {
    hn::Vec<DI> other = hn::Zero(di);  // a second chain of answers that one waits for
    for (int i = 0; i < kCount; i += 2) {
      sum = add_products_of_pair(di, codes[i], q + i, sum);
      other = add_products_of_pair(di, codes[i + 1], q + i + 1, other);
    }
    sum = hn::Add(sum, other);
  }
  const auto sums = hn::ConvertTo(df, sum);
  const auto all = first ? hn::Mul(sums, steps) : hn::MulAdd(sums, steps, hn::LoadU(df, scores));
  hn::StoreU(all, df, scores);
}

// All queries against keys [count] -> scores.
template <class F, bool kInt8, int kWords>
HWY_NOINLINE void score_block_rows(const std::byte* const* keys, int count, const ScaleColumns& scales,
                                   const CodedQueries& coded, int queries, int head_dim,
                                   Prefetcher& shared_prefetcher, float* scores) {
  using Q = QueryBlock<F, kInt8>;
  const hn::ScalableTag<int32_t> di;
  const hn::RebindToFloat<decltype(di)> df;
  Prefetcher prefetcher = shared_prefetcher;  // a local one can live in registers, as these can
  const auto* const all_words = reinterpret_cast<const int32_t*>(coded.q);
  const int32_t* const starts = coded.start;
  const float* const steps = coded.block_step;
  const auto load = [](auto d, const std::byte* row, int word)
                        KV_INLINE { return load_words<F>(d, row, word); };
  for (int j = 0; j < count; j += static_cast<int>(hn::Lanes(di))) {
    for (int w = 0; w < words_of(F::kBits, head_dim); w += kWords) {
      hn::Vec<decltype(di)> words[kWords];
      load_key_words(di, keys + j, w, words, load);
      unroll<kWords / Q::kRowWords>([&](auto index) KV_INLINE {
        constexpr int kFirst = decltype(index)::value * Q::kRowWords;
        prefetcher.step();
        const int b = (w + kFirst) / Q::kRowWords;
        hn::Vec<decltype(di)> codes[Q::kWords];
        unroll<Q::kPlaneCount>([&](auto plane_index) KV_INLINE {
          constexpr int kPlane = decltype(plane_index)::value;
          for (int i = 0; i < Q::kRowWords; ++i)
            codes[kPlane * Q::kRowWords + i] = plane_of<F::kBits, kInt8, kPlane>(di, words[kFirst + i]);
        });
        const auto scale = hn::Load(df, scales.at(b, j));
        const int32_t* q = all_words + b * Q::kWords;
        int of_block = b;
        float* at = scores + j;
        for (int r = 0; r < queries; ++r, q += CodedQueries::kStride / 2, at += kScoreStride) {
          const auto step = hn::Mul(scale, hn::Set(df, steps[of_block]));
          add_scores<kInt8>(di, codes, q, starts[of_block], step, b == 0, at);
          of_block += CodedQueries::kStartStride;
        }
      });
    }
  }
  shared_prefetcher = prefetcher;
}

template <class F, bool kInt8>
bool score_blocks_of(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  const int count = run.count, blocks = work.head_dim / kGgmlBlock;
  ScaleColumns& scales = work.scratch.columns;
  if (!load_scale_columns(side.meta + run.first, count, blocks, true, scales)) return false;
  code_queries(run.k, work, [&](const float* q, float /*largest*/, int r) KV_ATTR {
    code_query_blocks<F, kInt8>(q, work.head_dim, r, work.queries);
  });
  constexpr int kLanes = hn::MaxLanes(hn::ScalableTag<int32_t>());
  const std::byte* scratch[kPaddedRows];
  work.prefetcher.begin_part(int64_t{(count + kLanes - 1) / kLanes} * blocks);
  with_key_words<kWordsPerBlock<F>>(words_of(F::kBits, work.head_dim), [&](auto words) KV_ATTR {
    score_block_rows<F, kInt8, decltype(words)::value>(
        pad_rows(side.row + run.first, count, scratch), count, scales, work.queries,
        static_cast<int>(work.task.queries), work.head_dim, work.prefetcher, scores);
  });
  return true;
}

bool score_blocks(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  SplitScales& split = work.scratch.split;
  const TileSide& rows = split_minima(side, run.k, run, work.head_dim, split);
  bool done = false;
  visit_block_rows(run.k, [&](auto format) KV_ATTR {
    done = score_blocks_of<decltype(format), false>(rows, run, work, scores);
  });
  if (done && has_minima(run.k)) add_middles_to_scores(split, run.count, work, scores);
  return done;
}

bool score_blocks_int8(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  bool done = false;
  visit_block_codes(run.k, [&](auto format) KV_ATTR {
    done = score_blocks_of<decltype(format), true>(side, run, work, scores);
  });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
