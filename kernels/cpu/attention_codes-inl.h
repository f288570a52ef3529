// Scores and weighted values of rows of integer codes, without decoding them: queries and weights become
// 16-bit integers, products are summed exactly in 32 bits, and scales are applied to sums.
//
//   score   scale * sum_d q[d] c[d]          q as 16 bits, once a task; for kChannel, whose scales differ
//                                            from d to d, scale[d] goes into q once a unit
//   value   sum_j (p[j] scale[j]) c[j][d]    p[j] scale[j] as 16 bits, once a tile
//
// Rows under a scale a row or a channel hold dealt codes, and have their loops in codes_dealt-inl.h; ggml's,
// in blocks, in codes_scores-inl.h and codes_values-inl.h. Codes are taken as unsigned, and their middle is
// taken off the sums. Whatever is rounded is rounded to 1/32767 of the largest of its kind, far below the
// codes' own step of at best 1/255. Private to kernels/cpu; compiled once a target.
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
#include "kernels/cpu/codes_dealt-inl.h"
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
  DealtWeights dealt_weights;
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

// Codes the task's queries with code(x, largest, r), unless the last run was of the same layout.
template <class Code>
void code_queries(const Encoding& e, const CodeWork& work, Code code) {
  if (work.queries.coded_for == e) return;
  for (int r = 0; r < work.task.queries; ++r) {
    const float* q = work.task.query(r, work.head_dim);
    code(q, largest_magnitude(q, work.head_dim), r);
    work.queries.offset[r] = e.affine ? sum_of(q, work.head_dim) : 0.0f;
  }
  work.queries.coded_for = e;
}

// Announces the scores of a run of dealt codes to the requests for memory.
template <class Layout>
void begin_scores(int count, const CodeWork& work) {
  constexpr int kTogether = kRowsTogether<hn::ScalableTag<int32_t>>;
  const int blocks = work.head_dim * Layout::kBits / 128;
  work.ahead.begin_part(int64_t{(count + kTogether - 1) / kTogether} * blocks *
                        query_blocks(static_cast<int>(work.task.queries)));
}

template <class Layout>
bool score_tokens(const std::byte* const* keys, const std::byte* const* meta, const Encoding& e, int count,
                  const CodeWork& work, float* scores) {
  CodeScratch& s = work.scratch;
  if (!load_row_scales(meta, count, e.affine, kMiddle<Layout>, s.rows)) return false;
  code_queries(e, work, [&](const float* q, float largest, int r) KV_ATTR {
    const auto sums = code_dealt_query<Layout>(q, largest, work.head_dim, r, work.queries);
    work.queries.start_sum[r] =
        -kMiddle<Layout> * hn::GetLane(hn::SumOfLanes(hn::CappedTag<int32_t, 16>(), sums));
  });
  begin_scores<Layout>(count, work);
  const std::byte* room[kPaddedRows];
  keys = pad_rows(keys, count, room);
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  for_query_blocks(static_cast<int>(work.task.queries), [&](auto some, int first) KV_ATTR {
    score_rows<Layout, decltype(some)::value>(
        keys, count, work.queries, first, work.head_dim * Layout::kBits / 32, work.ahead, scores,
        [&](int r, int j, auto sums) KV_INLINE {
          const auto exact = hn::ConvertTo(df, hn::Add(sums, hn::Set(di, work.queries.start_sum[r])));
          const auto scaled =
              hn::Mul(exact, hn::Mul(hn::Set(df, work.queries.step[r]), hn::Load(df, s.rows.scale + j)));
          if (!e.affine) return scaled;
          return hn::MulAdd(hn::Load(df, s.rows.zero + j), hn::Set(df, work.queries.offset[r]), scaled);
        });
  });
  return true;
}

template <class Layout, int kPack, class DI>
bool score_ggml(DI di, const std::byte* const* keys, const std::byte* const* meta, const Encoding& e,
                int count, const CodeWork& work, float* scores) {
  CodeScratch& s = work.scratch;
  if (!load_block_scales(meta, count, work.head_dim / kGgmlBlock, s.blocks)) return false;
  code_queries(e, work, [&](const float* q, float largest, int r) KV_ATTR {
    code_query<Layout, kPack>(di, q, largest, work.head_dim, r, work.queries);
  });
  const int vectors = work.head_dim * Layout::kBits / 32 * kPack / static_cast<int>(hn::Lanes(di));
  work.ahead.begin_part(int64_t{(count + 4 * kPack - 1) / (4 * kPack)} * vectors);
  const std::byte* room[kPaddedRows];
  score_blocks<Layout, kPack>(di, pad_rows(keys, count, room), count, s.blocks, work.queries,
                              static_cast<int>(work.task.queries), vectors, work.ahead, scores);
  const hn::CappedTag<float, 16> df;
  for (int r = 0; r < work.task.queries; ++r) {
    float* at = scores + r * kScoreStride;
    const auto step = hn::Set(df, work.queries.step[r]);
    for (int j = 0; j < count; j += static_cast<int>(hn::Lanes(df)))
      hn::StoreU(hn::Mul(hn::LoadU(df, at + j), step), df, at + j);
  }
  return true;
}

// Queries first … first + kQueries - 1 times a unit's scales, coded; what is to be added to each score, for
// zero points and since codes are taken from the grids' middles, -> offset. False if a scale is not finite.
template <class Layout, int kQueries>
bool code_scaled_queries(const std::byte* meta, int first, const CodeWork& work) {
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
  float largest[kQueries];
  largest_of_lanes<kQueries>(df, top, largest);
  for (int r = 0; r < kQueries; ++r) {
    const auto sums = code_dealt_query<Layout>(s.scaled_queries + r * kMaxHeadDim, largest[r], head_dim,
                                               first + r, work.queries);
    const auto middles = hn::Set(df, static_cast<float>(-kMiddle<Layout>) * work.queries.step[first + r]);
    offset[r] = hn::MulAdd(hn::ConvertTo(df, sums), middles, offset[r]);
  }
  sums_of_lanes<kQueries>(df, offset, work.queries.offset + first);
  return true;
}

// A unit at a time.
template <class Layout>
bool score_channels(const std::byte* const* keys, const std::byte* const* meta, int group, int count,
                    const CodeWork& work, float* scores) {
  work.queries.coded_for.reset();
  begin_scores<Layout>(count, work);
  const hn::ScalableTag<float> df;
  const std::byte* room[kPaddedRows];
  bool finite = true;
  for (int done = 0, rows = 0; finite && done < count; done += rows) {
    for (rows = std::min(group, count - done); meta[done + rows - 1] != meta[done];) --rows;
    const std::byte* const* some_keys = pad_rows(keys + done, rows, room);
    for_query_blocks(static_cast<int>(work.task.queries), [&](auto some, int first) KV_ATTR {
      constexpr int kQueries = decltype(some)::value;
      finite = finite && code_scaled_queries<Layout, kQueries>(meta[done], first, work);
      if (!finite) return;
      score_rows<Layout, kQueries>(some_keys, rows, work.queries, first, work.head_dim * Layout::kBits / 32,
                                   work.ahead, scores + done, [&](int r, int, auto sums) KV_INLINE {
                                     return hn::MulAdd(hn::ConvertTo(df, sums),
                                                       hn::Set(df, work.queries.step[r]),
                                                       hn::Set(df, work.queries.offset[r]));
                                   });
    });
  }
  return finite;
}

// Scores of a run's rows, of finite queries, -> scores [queries, count], kScoreStride apart; up to
// kRowPadding numbers more are written. False, and nothing of use done, if a scale is not finite: such rows
// are for the decoding path, which keeps NaN.
inline bool score_codes(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  const std::byte *const *keys = side.row + run.first, *const *meta = side.meta + run.first;
  bool done = false;
  if (run.k.format == Format::kToken || run.k.format == Format::kChannel) {
    with_bits(run.k.bits, [&](auto layout) KV_ATTR {
      using Layout = decltype(layout);
      done = run.k.format == Format::kChannel
                 ? score_channels<Layout>(keys, meta, run.k.group, run.count, work, scores)
                 : score_tokens<Layout>(keys, meta, run.k, run.count, work, scores);
    });
  } else {
    with_blocks(run.k, work.head_dim, [&](auto layout, auto di, auto pack) KV_ATTR {
      done =
          score_ggml<decltype(layout), decltype(pack)::value>(di, keys, meta, run.k, run.count, work, scores);
    });
  }
  return done;
}

// ---- values ----

template <class Layout>
bool add_tokens(const std::byte* const* rows, const std::byte* const* meta, const Run& run,
                const CodeWork& work, const float* p) {
  CodeScratch& s = work.scratch;
  if (!load_row_scales(meta, run.count, run.v.affine, kMiddle<Layout>, s.rows)) return false;
  const std::byte* room[kPaddedRows];
  rows = pad_rows(rows, run.count, room);
  const int queries = static_cast<int>(work.task.queries), pairs = (run.count + 1) / 2,
            words = work.head_dim * Layout::kBits / 32;
  with_packs(words, [&](auto di, auto pack) KV_ATTR {
    constexpr int kPack = decltype(pack)::value;
    int64_t steps = 0;
    for_query_blocks(queries, [&](auto some, int) KV_ATTR {
      constexpr int kQueries = decltype(some)::value;
      with_wide<Layout, kPack, kQueries>(di, words, [&](auto wide) KV_ATTR {
        steps += value_steps<Layout, kPack, kQueries>(di, pairs, words) / decltype(wide)::value;
      });
    });
    work.ahead.begin_part(steps);
    for_query_blocks(queries, [&](auto some, int r) KV_ATTR {
      constexpr int kQueries = decltype(some)::value;
      code_dealt_weights<Layout, kQueries>(p + r * kScoreStride, s.rows, run.v.affine, run.count,
                                           s.dealt_weights);
      with_wide<Layout, kPack, kQueries>(di, words, [&](auto wide) KV_ATTR {
        add_dealt_values<Layout, kPack, decltype(wide)::value, kQueries>(
            di, rows, pairs, s.dealt_weights, work.head_dim, work.ahead,
            work.task.sum + int64_t{r} * work.head_dim);
      });
    });
  });
  return true;
}

template <class Layout, int kPack, class DI>
bool add_ggml(DI di, const std::byte* const* rows, const std::byte* const* meta, int count,
              const CodeWork& work, const float* p) {
  CodeScratch& s = work.scratch;
  const int blocks = work.head_dim / kGgmlBlock, words = work.head_dim * Layout::kBits / 32;
  if (!load_block_scales(meta, count, blocks, s.blocks)) return false;
  const std::byte* room[kPaddedRows];
  rows = pad_rows(rows, count, room);
  const int queries = static_cast<int>(work.task.queries), pairs = whole_steps(count) / 2;
  int64_t steps = 0;
  for_query_blocks(queries, [&](auto some, int) KV_ATTR {
    steps += value_steps<Layout, kPack, decltype(some)::value>(di, pairs, words);
  });
  work.ahead.begin_part(steps);
  for_query_blocks(queries, [&](auto some, int r) KV_ATTR {
    constexpr int kQueries = decltype(some)::value;
    code_block_weights<Layout, kQueries>(p + r * kScoreStride, s.blocks, count, blocks, s.weights);
    add_code_values<Layout, kPack, kQueries>(di, rows, pairs, s.weights, work.head_dim, work.ahead,
                                             work.task.sum + int64_t{r} * work.head_dim);
  });
  return true;
}

// Adds a run's values, weighted with p [queries, count], kScoreStride apart, to the task's sums. False, and
// nothing done, if a scale is not finite.
inline bool add_codes(const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  const std::byte *const *rows = side.row + run.first, *const *meta = side.meta + run.first;
  bool done = false;
  if (run.v.format == Format::kToken) {
    with_bits(run.v.bits,
              [&](auto layout) KV_ATTR { done = add_tokens<decltype(layout)>(rows, meta, run, work, p); });
  } else {
    with_blocks(run.v, work.head_dim, [&](auto layout, auto di, auto pack) KV_ATTR {
      done = add_ggml<decltype(layout), decltype(pack)::value>(di, rows, meta, run.count, work, p);
    });
  }
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
