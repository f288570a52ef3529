// Scores and weighted values of rows of integer codes, without decoding them: queries and weights become
// 16-bit integers, products are summed exactly in 32 bits, and scales are applied to sums.
//
//   score   scale * sum_d q[d] c[d]          q as 16 bits, once a task; for kChannel, whose scales differ
//                                            from d to d, scale[d] goes into q once a unit
//   value   sum_j (p[j] scale[j]) c[j][d]    p[j] scale[j] as 16 bits, once a tile
//
// Codes are taken as unsigned, and their middle is taken off the sums. Whatever is rounded is rounded to
// 1/32767 of the largest of its kind, far below the codes' own step of at best 1/255. Private to kernels/cpu;
// compiled once a target.
#if defined(KV_ATTENTION_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_ATTENTION_CODES_INL_H_
#undef KV_ATTENTION_CODES_INL_H_
#else
#define KV_ATTENTION_CODES_INL_H_
#endif

#include <algorithm>

#include <hwy/highway.h>

#include "kernels/attention_task.h"
#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/codes-inl.h"
#include "kernels/cpu/codes_scales-inl.h"
#include "kernels/cpu/codes_scores-inl.h"
#include "kernels/cpu/codes_values-inl.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cpu/tile.h"

KV_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Not initialised: only what is written is read.
struct CodeScratch {
  RowScales rows;
  BlockScales blocks;
  HWY_ALIGN float scaled_queries[4 * kMaxHeadDim];
  CodedWeights weights;
};

// What scores and values of a run are worked on with.
struct CodeWork {
  const AttentionTask& task;
  int head_dim;
  CodeScratch& scratch;
  CodedQueries& queries;
  Ahead& ahead;
};

// ---- scores ----

// Vectors of a row's words that are unpacked together.
template <class Layout>
constexpr int kVectorsOf = Layout::kWordsPerBlock == 0 && kPlanes<Layout> * 2 <= kUnpacked ? 2 : 1;

// The task's queries against keys [count] -> sums of products, or, of formats with blocks, scores in steps of
// the query; [queries], kScoreStride apart.
template <class Layout, int kPack, class DI>
void sum_run(DI di, const std::byte* const* keys, int count, const CodeWork& work, float* sums) {
  const std::byte* room[kPaddedRows];
  keys = pad_rows(keys, count, room);
  CodeScratch& s = work.scratch;
  const int queries = static_cast<int>(work.task.queries);
  const int vectors = work.head_dim * Layout::kBits / 32 * kPack / static_cast<int>(hn::Lanes(di));
  if constexpr (Layout::kWordsPerBlock != 0) {
    score_blocks<Layout>(di, keys, count, s.blocks, work.queries, queries, vectors, work.ahead, sums);
  } else if (vectors % kVectorsOf<Layout> == 0) {
    sum_keys<Layout, kPack, kVectorsOf<Layout>>(di, keys, count, work.queries, queries, vectors, work.ahead,
                                                sums);
  } else {
    sum_keys<Layout, kPack, 1>(di, keys, count, work.queries, queries, vectors, work.ahead, sums);
  }
}

// Announces a run's scores to the requests for memory.
template <class Layout, int kPack, class DI>
void begin_scores(DI di, int count, const CodeWork& work) {
  const int vectors = work.head_dim * Layout::kBits / 32 * kPack / static_cast<int>(hn::Lanes(di));
  const int at_once = vectors % kVectorsOf<Layout> == 0 ? kVectorsOf<Layout> : 1;
  work.ahead.begin_part(int64_t{(count + 4 * kPack - 1) / (4 * kPack)} * (vectors / at_once));
}

inline float largest_magnitude(const float* x, int n) {
  const hn::CappedTag<float, 16> d;
  auto top = hn::Zero(d);
  for (int i = 0; i < n; i += static_cast<int>(hn::Lanes(d)))
    top = hn::Max(top, hn::Abs(hn::LoadU(d, x + i)));
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

inline float sum_of(const float* x, int n) {
  const hn::CappedTag<float, 16> df;
  auto sum = hn::Zero(df);
  for (int i = 0; i < n; i += static_cast<int>(hn::Lanes(df))) sum = hn::Add(sum, hn::LoadU(df, x + i));
  return hn::GetLane(hn::SumOfLanes(df, sum));
}

// Codes the task's queries, unless the last run was of the same layout.
template <class Layout, int kPack, class DI>
void code_queries(DI di, const Encoding& e, const CodeWork& work) {
  if (work.queries.coded_for == e) return;
  for (int r = 0; r < work.task.queries; ++r) {
    const float* q = work.task.query(r, work.head_dim);
    const float largest = largest_magnitude(q, work.head_dim);
    code_query<Layout, kPack>(di, q, largest, work.head_dim, r, work.queries);
    work.queries.offset[r] = e.affine ? sum_of(q, work.head_dim) : 0.0f;
  }
  work.queries.coded_for = e;
}

// Query r's sums of products [count] in place -> scores, where call(j, sums) makes them of a vector.
template <class Call>
HWY_INLINE void finish_scores(int count, const CodedQueries& coded, int r, float* sums, Call call) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto start = hn::Set(di, coded.start_sum[r]);
  for (int j = 0; j < count; j += static_cast<int>(hn::Lanes(df))) {
    const auto sum = hn::BitCast(di, hn::LoadU(df, sums + j));
    hn::StoreU(call(j, hn::ConvertTo(df, hn::Add(sum, start))), df, sums + j);
  }
}

template <class Layout, int kPack, class DI>
bool score_tokens(DI di, const std::byte* const* keys, const std::byte* const* meta, const Encoding& e,
                  int count, const CodeWork& work, float* scores) {
  CodeScratch& s = work.scratch;
  if (!load_row_scales(meta, count, e.affine, kMiddle<Layout>, s.rows)) return false;
  code_queries<Layout, kPack>(di, e, work);
  begin_scores<Layout, kPack>(di, count, work);
  sum_run<Layout, kPack>(di, keys, count, work, scores);
  const hn::CappedTag<float, 16> df;
  for (int r = 0; r < work.task.queries; ++r) {
    const auto step = hn::Set(df, work.queries.step[r]), offset = hn::Set(df, work.queries.offset[r]);
    finish_scores(count, work.queries, r, scores + r * kScoreStride, [&](int j, auto sums) KV_ATTR {
      const auto scaled = hn::Mul(sums, hn::Mul(step, hn::Load(df, s.rows.scale + j)));
      return e.affine ? hn::MulAdd(hn::Load(df, s.rows.zero + j), offset, scaled) : scaled;
    });
  }
  return true;
}

template <class Layout, class DI>
bool score_ggml(DI di, const std::byte* const* keys, const std::byte* const* meta, const Encoding& e,
                int count, const CodeWork& work, float* scores) {
  CodeScratch& s = work.scratch;
  if (!load_block_scales(meta, count, work.head_dim / kGgmlBlock, s.blocks)) return false;
  code_queries<Layout, 1>(di, e, work);
  begin_scores<Layout, 1>(di, count, work);
  sum_run<Layout, 1>(di, keys, count, work, scores);
  const hn::CappedTag<float, 16> df;
  for (int r = 0; r < work.task.queries; ++r) {
    float* at = scores + r * kScoreStride;
    const auto step = hn::Set(df, work.queries.step[r]);
    for (int j = 0; j < count; j += static_cast<int>(hn::Lanes(df)))
      hn::StoreU(hn::Mul(hn::LoadU(df, at + j), step), df, at + j);
  }
  return true;
}

// Queries first … first + kQueries - 1 times a unit's scales, coded; what the middles of the channels' grids
// add to each score -> offset. False if a scale is not finite.
template <class Layout, int kPack, int kQueries, class DI>
bool code_scaled_queries(DI di, const std::byte* meta, int first, const CodeWork& work) {
  CodeScratch& s = work.scratch;
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<uint16_t, decltype(df)> half;
  const auto* from = reinterpret_cast<const uint16_t*>(meta);
  const int head_dim = work.head_dim;
  const auto middle = hn::Set(df, static_cast<float>(kMiddle<Layout>));
  const float* q = work.task.query(first, head_dim);
  auto probe = hn::Zero(df);
  hn::Vec<decltype(df)> offset[kQueries], top[kQueries];
  for (int r = 0; r < kQueries; ++r) offset[r] = top[r] = hn::Zero(df);
  for (int i = 0; i < head_dim; i += static_cast<int>(hn::Lanes(df))) {
    const auto scale = widen_half(df, hn::LoadU(half, from + i));  // up to 8 bits, they are f16
    const auto zero = hn::MulAdd(middle, scale, widen_half(df, hn::LoadU(half, from + head_dim + i)));
    probe = hn::MulAdd(scale, hn::Zero(df), probe);
    for (int r = 0; r < kQueries; ++r) {
      const auto x = hn::LoadU(df, q + r * head_dim + i), scaled = hn::Mul(x, scale);
      hn::Store(scaled, df, s.scaled_queries + r * kMaxHeadDim + i);
      top[r] = hn::Max(top[r], hn::Abs(scaled));
      offset[r] = hn::MulAdd(x, zero, offset[r]);
    }
  }
  if (!hn::AllTrue(df, hn::Eq(probe, hn::Zero(df)))) return false;
  for (int r = 0; r < kQueries; ++r) {
    const float largest = hn::GetLane(hn::MaxOfLanes(df, top[r]));
    work.queries.offset[first + r] = hn::GetLane(hn::SumOfLanes(df, offset[r]));
    code_query<Layout, kPack>(di, s.scaled_queries + r * kMaxHeadDim, largest, head_dim, first + r,
                              work.queries);
  }
  return true;
}

// A unit at a time.
template <class Layout, int kPack, class DI>
bool score_channels(DI di, const std::byte* const* keys, const std::byte* const* meta, int count,
                    const CodeWork& work, float* scores) {
  work.queries.coded_for.reset();
  begin_scores<Layout, kPack>(di, count, work);
  const hn::CappedTag<float, 16> df;
  for (int done = 0, rows = 0; done < count; done += rows) {
    for (rows = 1; done + rows < count && meta[done + rows] == meta[done];) ++rows;
    bool finite = true;
    for_query_blocks(static_cast<int>(work.task.queries), [&](auto some, int r) KV_ATTR {
      finite &= code_scaled_queries<Layout, kPack, decltype(some)::value>(di, meta[done], r, work);
    });
    if (!finite) return false;
    sum_run<Layout, kPack>(di, keys + done, rows, work, scores + done);
    for (int r = 0; r < work.task.queries; ++r) {
      const auto step = hn::Set(df, work.queries.step[r]), offset = hn::Set(df, work.queries.offset[r]);
      finish_scores(rows, work.queries, r, scores + r * kScoreStride + done,
                    [&](int, auto sums) KV_ATTR { return hn::MulAdd(sums, step, offset); });
    }
  }
  return true;
}

// Scores of a run's rows, of finite queries, -> scores [queries, count], kScoreStride apart; up to
// kRowPadding numbers more are written. False, and nothing of use done, if a scale is not finite: such rows
// are for the decoding path, which keeps NaN.
inline bool score_codes(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  const std::byte *const *keys = side.row + run.first, *const *meta = side.meta + run.first;
  bool done = false;
  with_layout(run.k, work.head_dim, [&](auto layout, auto di, auto pack) KV_ATTR {
    using Layout = decltype(layout);
    constexpr int kPack = decltype(pack)::value;
    if constexpr (Layout::kWordsPerBlock != 0) {
      done = score_ggml<Layout>(di, keys, meta, run.k, run.count, work, scores);
    } else if (run.k.format == Format::kChannel) {
      done = score_channels<Layout, kPack>(di, keys, meta, run.count, work, scores);
    } else {
      done = score_tokens<Layout, kPack>(di, keys, meta, run.k, run.count, work, scores);
    }
  });
  return done;
}

// ---- values ----

template <class Layout, int kPack, class DI>
bool add_run(DI di, const std::byte* const* rows, const std::byte* const* meta, const Run& run,
             const CodeWork& work, const float* p) {
  CodeScratch& s = work.scratch;
  const int blocks = work.head_dim / kGgmlBlock, words = work.head_dim * Layout::kBits / 32;
  if constexpr (Layout::kWordsPerBlock != 0) {
    if (!load_block_scales(meta, run.count, blocks, s.blocks)) return false;
  } else {
    if (!load_row_scales(meta, run.count, run.v.affine, kMiddle<Layout>, s.rows)) return false;
  }
  const std::byte* room[kPaddedRows];
  rows = pad_rows(rows, run.count, room);
  const int queries = static_cast<int>(work.task.queries),
            pairs = Layout::kWordsPerBlock != 0 ? (run.count + 7) / 8 * 4 : (run.count + 1) / 2;
  int64_t steps = 0;
  for_query_blocks(queries, [&](auto some, int) KV_ATTR {
    steps += value_steps<Layout, kPack, decltype(some)::value>(di, pairs, words);
  });
  work.ahead.begin_part(steps);
  for_query_blocks(queries, [&](auto some, int r) KV_ATTR {
    constexpr int kQueries = decltype(some)::value;
    const float* some_p = p + r * kScoreStride;
    if constexpr (Layout::kWordsPerBlock == 0) {
      code_weights<Layout, kQueries>(some_p, s.rows, run.v.affine, run.count, s.weights);
    } else {
      for (int i = 0; i < kQueries; ++i)
        code_block_weights<Layout>(some_p + i * kScoreStride, s.blocks, run.count, blocks, i, s.weights);
    }
    add_code_values<Layout, kPack, kQueries>(di, rows, pairs, s.weights, work.head_dim, work.ahead,
                                             work.task.sum + int64_t{r} * work.head_dim);
  });
  return true;
}

// Adds a run's values, weighted with p [queries, count], kScoreStride apart, to the task's sums. False, and
// nothing done, if a scale is not finite.
inline bool add_codes(const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  bool done = false;
  with_layout(run.v, work.head_dim, [&](auto layout, auto di, auto pack) KV_ATTR {
    done = add_run<decltype(layout), decltype(pack)::value>(di, side.row + run.first, side.meta + run.first,
                                                            run, work, p);
  });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
