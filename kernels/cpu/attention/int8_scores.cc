// Scores of rows of codes in blocks (q8_0, q4_0) with queries of 8 bits under a step a block, as ggml's products of
// blocks have them; compiled once for each instruction set.
//
// Keys lie in lanes: words of as many rows as a vector has lanes are transposed once for all queries, four rows of each 128-bit
// block at a time. A query's word then meets all lanes, sums need none across them, and a block's scales of those rows are a
// vector.
//
//   in      row 0   w3 w2 w1 w0         out     word 0   r3 r2 r1 r0      (in each 128-bit block: w0 of row 3, 2, 1, 0)
//           row 1   w3 w2 w1 w0                 word 1   r3 r2 r1 r0
//           row 2   w3 w2 w1 w0                 word 2   r3 r2 r1 r0
//           row 3   w3 w2 w1 w0                 word 3   r3 r2 r1 r0
#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/int8_scores.cc"
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

constexpr float kLargestQuery = 127.0f;
constexpr int kBlockWords = kGgmlBlock / 4;  // 8-bit codes

// Query r's elements x [head_dim] -> codes in their order, starts and steps block by block.
template <class F>
void code_int8_query(const float* x, int head_dim, int r, CodedQueries& out) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int8_t, decltype(df)> narrow;
  auto* codes = reinterpret_cast<int8_t*>(out.q + r * CodedQueries::kStride);
  for (int b = 0; b < head_dim / kGgmlBlock; ++b, x += kGgmlBlock, codes += kGgmlBlock) {
    const float largest = largest_magnitude(x, kGgmlBlock);
    const auto inverse = hn::Set(df, largest > 0.0f ? kLargestQuery / largest : 0.0f);
    auto sum = hn::Zero(di);
    for (int i = 0; i < kGgmlBlock; i += static_cast<int>(hn::Lanes(df))) {
      const auto code = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), inverse));
      hn::StoreU(hn::DemoteTo(narrow, code), narrow, codes + i);
      sum = hn::Add(sum, code);
    }
    const int at = r * CodedQueries::kStartStride + b;
    out.block_step[at] = largest * (1.0f / kLargestQuery);
    out.start[at] = -kMiddle<F::kBits> * hn::GetLane(hn::SumOfLanes(di, sum));
  }
}

// 16 bytes from `offset` on of as many rows as fill a vector: row[0], row[4], row[8] …
template <class DI>
HWY_INLINE hn::Vec<DI> load_pieces(DI di, const std::byte* const* row, int64_t offset) {
  if constexpr (hn::MaxLanes(DI()) == 4) {
    return hn::LoadU(di, reinterpret_cast<const int32_t*>(row[0] + offset));
  } else {
    const hn::Half<DI> half;
    constexpr int kUpper = hn::MaxLanes(DI()) / 2;
    return hn::Combine(di, load_pieces(half, row + kUpper, offset), load_pieces(half, row, offset));
  }
}

// Words from byte `offset` on of `lanes` keys, as unsigned codes: 16 at a time where rows have so many and vectors so many
// lanes, else four.
template <class F, int kWords, class DI>
HWY_INLINE void load_key_words(DI di, const std::byte* const* keys, int64_t offset,
                               hn::Vec<DI> (&words)[kWords]) {
  const hn::RepartitionToNarrow<DI> d16;
  for (int first = 0; first < kWords; first += 4) {
    hn::Vec<decltype(d16)> some[4];
    for (int i = 0; i < 4; ++i) {
      const auto word = kWords == 16 ? load_words<F>(di, keys[first + i] + offset, 0)
                                     : unsigned_codes<F>(di, load_pieces(di, keys + i, offset));
      some[i] = hn::BitCast(d16, word);
    }
    transpose_words(d16, some);
    for (int i = 0; i < 4; ++i) words[first + i] = hn::BitCast(di, some[i]);
  }
  if constexpr (kWords == 16) {
    hn::Vec<DI> column[4][4];
    for (int i = 0; i < 4; ++i) {
      for (int rows = 0; rows < 4; ++rows) column[i][rows] = words[4 * rows + i];
      transpose_blocks(di, column[i]);
    }
    for (int w = 0; w < 16; ++w) words[w] = column[w % 4][w / 4];
  }
}

// Adds the sums of a query's words q times codes, from `start` on, in steps, to its scores; the first ones are stored.
template <int kCount, class DI>
HWY_INLINE void add_scores(DI di, const hn::Vec<DI> (&codes)[kCount], const int32_t* q, hn::Vec<DI> start,
                           hn::Vec<hn::RebindToFloat<DI>> steps, bool first, float* scores) {
  const hn::RebindToFloat<DI> df;
  for (int i = 0; i < kCount; ++i) start = add_quad_products_of_word(di, codes[i], q + i, start);
  const auto sums = hn::ConvertTo(df, start);
  const auto all = first ? hn::Mul(sums, steps) : hn::MulAdd(sums, steps, hn::LoadU(df, scores));
  hn::StoreU(all, df, scores);
}

// All queries against keys [count] -> scores.
template <class F, int kWords>
HWY_NOINLINE void score_int8_rows(const std::byte* const* keys, int count, const ScaleColumns& scales,
                                  const CodedQueries& coded, int queries, int head_dim,
                                  Prefetcher& shared_prefetcher, float* scores) {
  const hn::ScalableTag<int32_t> di;
  const hn::RebindToFloat<decltype(di)> df;
  Prefetcher prefetcher = shared_prefetcher;  // a local one can live in registers, as these can
  const auto* const all_words = reinterpret_cast<const int32_t*>(coded.q);
  const int32_t* const starts = coded.start;
  const float* const steps = coded.block_step;
  constexpr int kPlanes8 = kBytePlanes<F::kBits>, kRun = std::min(kWords, kWordsPerBlock<F>);
  for (int j = 0; j < count; j += static_cast<int>(hn::Lanes(di))) {
    for (int w = 0; w < words_of(F::kBits, head_dim); w += kWords) {
      hn::Vec<decltype(di)> words[kWords];
      load_key_words<F>(di, keys + j, w * 4, words);
      unroll<kWords / kRun>([&](auto index) KV_INLINE {
        constexpr int kFirst = decltype(index)::value * kRun;
        prefetcher.step();
        const int b = (w + kFirst) / kWordsPerBlock<F>, place = (w + kFirst) % kWordsPerBlock<F>;
        hn::Vec<decltype(di)> codes[kPlanes8 * kRun];
        for (int i = 0; i < kRun; ++i) {
          codes[i] = byte_plane<F::kBits, 0>(di, words[kFirst + i]);
          if constexpr (kPlanes8 == 2) codes[kRun + i] = byte_plane<F::kBits, 1>(di, words[kFirst + i]);
        }
        const auto scale = hn::Load(df, scales.at(b, j));
        const int32_t* q = all_words + b * kBlockWords + place;
        int of_block = b;
        float* at = scores + j;
        for (int r = 0; r < queries; ++r, q += CodedQueries::kStride / 2, at += kScoreStride) {
          const auto start = place == 0 ? hn::Set(di, starts[of_block]) : hn::Zero(di);
          const auto step = hn::Mul(scale, hn::Set(df, steps[of_block]));
          add_scores(di, codes, q, start, step, w + kFirst == 0, at);
          of_block += CodedQueries::kStartStride;
        }
      });
    }
  }
  shared_prefetcher = prefetcher;
}

template <class F>
bool score_int8_of(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  const int count = run.count, blocks = work.head_dim / kGgmlBlock;
  ScaleColumns& scales = work.scratch.columns;
  if (!load_scale_columns(side.meta + run.first, count, blocks, true, scales)) return false;
  code_queries(run.k, work, [&](const float* q, float /*largest*/, int r) KV_ATTR {
    code_int8_query<F>(q, work.head_dim, r, work.queries);
  });
  constexpr int kLanes = hn::MaxLanes(hn::ScalableTag<int32_t>());
  const std::byte* scratch[kPaddedRows];
  const auto score_words = [&](auto words) KV_ATTR {
    constexpr int kWords = decltype(words)::value;
    const int steps = words_of(F::kBits, work.head_dim) / std::min(kWords, kWordsPerBlock<F>);
    work.prefetcher.begin_part(int64_t{(count + kLanes - 1) / kLanes} * steps);
    score_int8_rows<F, kWords>(pad_rows(side.row + run.first, count, scratch), count, scales, work.queries,
                               static_cast<int>(work.task.queries), work.head_dim, work.prefetcher, scores);
  };
  if constexpr (kLanes == 16) {
    if (words_of(F::kBits, work.head_dim) % 16 == 0) {
      score_words(std::integral_constant<int, 16>());
      return true;
    }
  }
  score_words(std::integral_constant<int, 4>());
  return true;
}

bool score_blocks_int8(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  bool done = false;
  visit_block_codes(
      run.k, [&](auto format) KV_ATTR { done = score_int8_of<decltype(format)>(side, run, work, scores); });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
