// The vector attention path, compiled once a Highway target.
//
// A tile is kTileRows row *pointers*, so it never matters where a span ends. For each tile:
//   scores   a register block of 4 keys x up to 4 query rows shares every load; the 4x4 partial sums are
//   transposed and
//            folded together rather than reduced one by one
//   softmax  exp over the tile, the running sum rescaled only when the maximum grows
//   values   a register block of up to 4 query rows x 4 vectors of head_dim stays in registers over the whole
//   tile
// f32, f16 and bf16 rows are converted in the load. Rows of any other format are first decoded to f32 scratch
// that stays in the L1/L2 cache. Since all query heads of a kv head are in one block, each row leaves memory
// once.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention_task.h"
#include "kernels/cpu/targets.h"
#include "kernels/encoding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_simd.cc"
#include <hwy/foreach_target.h>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kKeys = 4;  // keys of a register block

// Rows of a tile that are stored alike.
struct Run {
  int first, count;
  Encoding k, v;
};

struct Tile {
  int rows = 0;
  const std::byte* k[kTileRows + kKeys];  // padded, so that the last block of keys may read past the end
  const std::byte* v[kTileRows];
  int runs = 0;
  Run run[kTileRows];
};

bool is_direct(Format f) { return f == Format::kF32 || f == Format::kF16 || f == Format::kBf16; }

// Row pointers of one side; formats without a vector load are decoded to scratch [kTileRows, head_dim].
void point_at_rows(const Side& side, int64_t first_row, int count, int head_dim, float* scratch,
                   const std::byte** out) {
  if (is_direct(side.encoding.format)) {
    const std::byte* p = side.data + first_row * side.stride;
    for (int i = 0; i < count; ++i, p += side.stride) out[i] = p;
    return;
  }
  decode_rows(side, head_dim, first_row, count, scratch);
  for (int i = 0; i < count; ++i)
    out[i] = reinterpret_cast<const std::byte*>(scratch + int64_t{i} * head_dim);
}

struct Scratch {
  HWY_ALIGN float scores[kQueryBlock * kTileRows];
  HWY_ALIGN float k[kTileRows * kMaxHeadDim];
  HWY_ALIGN float v[kTileRows * kMaxHeadDim];
};

// Moves the cursor over the next `rows` rows and fills the tile with them.
void next_tile(std::span<const Span> spans, SpanCursor& at, int rows, int head_dim, Scratch& scratch,
               Tile& tile) {
  tile.rows = 0;
  tile.runs = 0;
  while (tile.rows < rows) {
    const Span& span = spans[at.span];
    const int take = static_cast<int>(std::min<int64_t>(rows - tile.rows, span.rows - at.row));
    if (take > 0) {
      const int64_t offset = int64_t{tile.rows} * head_dim;
      point_at_rows(span.k, at.row, take, head_dim, scratch.k + offset, tile.k + tile.rows);
      point_at_rows(span.v, at.row, take, head_dim, scratch.v + offset, tile.v + tile.rows);
      Run* last = tile.runs ? &tile.run[tile.runs - 1] : nullptr;
      if (last && last->k == span.k.encoding && last->v == span.v.encoding) {
        last->count += take;
      } else {
        tile.run[tile.runs++] = {tile.rows, take, span.k.encoding, span.v.encoding};
      }
      tile.rows += take;
      at.row += take;
    }
    if (at.row == span.rows) at = {at.span + 1, 0};
  }
}

// ---- loads ----

struct LoadF32 {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const std::byte* row, int i) const {
    return hn::LoadU(d, reinterpret_cast<const float*>(row) + i);
  }
};
struct LoadF16 {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const std::byte* row, int i) const {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(row) + i));
  }
};
struct LoadBf16 {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const std::byte* row, int i) const {
    const hn::Rebind<hwy::bfloat16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(row) + i));
  }
};

template <class Call>
HWY_INLINE void with_load(Format format, Call call) {
  if (format == Format::kF16) return call(LoadF16());
  if (format == Format::kBf16) return call(LoadBf16());
  call(LoadF32());  // f32 rows, and everything that was decoded to scratch
}

// ---- scores ----

#if HWY_TARGET == HWY_SCALAR
template <class D, class V>
HWY_INLINE void store_sums(D, V a, V b, V c, V e, float* out) {
  out[0] = hn::GetLane(a), out[1] = hn::GetLane(b), out[2] = hn::GetLane(c), out[3] = hn::GetLane(e);
}
#else
// Adds the 128-bit blocks of v, lane by lane.
template <class D, class V>
HWY_INLINE auto fold_blocks([[maybe_unused]] D d, V v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return fold_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// The sums of four vectors, in four lanes. Each sum is formed by the same tree, whichever of the four it is.
template <class D, class V>
HWY_INLINE void store_sums(D d, V a, V b, V c, V e, float* out) {
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const hn::Repartition<double, D> pairs;
  const auto x = hn::BitCast(pairs, ab), y = hn::BitCast(pairs, ce);
  const V low = hn::BitCast(d, hn::InterleaveLower(pairs, x, y));
  const V high = hn::BitCast(d, hn::InterleaveUpper(pairs, x, y));
  const hn::CappedTag<float, 4> four;
  hn::StoreU(fold_blocks(d, hn::Add(low, high)), four, out);
}
#endif

template <int kQueries, class D, class Load>
HWY_INLINE void score_block(D d, Load load, const std::byte* const* k, const float* q, int head_dim,
                            float* scores) {
  using V = hn::Vec<D>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  V acc[kQueries][kKeys];
  for (auto& row : acc) {
    for (V& x : row) x = hn::Zero(d);
  }
  for (int i = 0; i < head_dim; i += lanes) {
    V key[kKeys];
    for (int j = 0; j < kKeys; ++j) key[j] = load(d, k[j], i);
    for (int r = 0; r < kQueries; ++r) {
      const V query = hn::LoadU(d, q + r * head_dim + i);
      for (int j = 0; j < kKeys; ++j) acc[r][j] = hn::MulAdd(key[j], query, acc[r][j]);
    }
  }
  for (int r = 0; r < kQueries; ++r) {
    store_sums(d, acc[r][0], acc[r][1], acc[r][2], acc[r][3], scores + r * kTileRows);
  }
}

template <class D, class Load>
void score_run(D d, Load load, const Tile& tile, const Run& run, const AttentionTask& task, int head_dim,
               float* scores) {
  const float* q = task.query(0, head_dim);
  const int queries = static_cast<int>(task.queries);
  for (int j = run.first; j < run.first + run.count; j += kKeys) {
    const std::byte* keys[kKeys];
    for (int i = 0; i < kKeys; ++i) keys[i] = tile.k[std::min(j + i, run.first + run.count - 1)];
    HWY_ALIGN float block[4 * kTileRows];
    const int count = std::min(kKeys, run.first + run.count - j);
    for (int r = 0; r < queries;) {
      const int step = queries - r >= 4 ? 4 : queries - r >= 2 ? 2 : 1;
      const float* rows = q + int64_t{r} * head_dim;
      if (step == 4) {
        score_block<4>(d, load, keys, rows, head_dim, block);
      } else if (step == 2) {
        score_block<2>(d, load, keys, rows, head_dim, block);
      } else {
        score_block<1>(d, load, keys, rows, head_dim, block);
      }
      for (int i = 0; i < step; ++i) {
        std::memcpy(scores + (r + i) * kTileRows + j, block + i * kTileRows,
                    sizeof(float) * static_cast<size_t>(count));
      }
      r += step;
    }
  }
}

// ---- softmax ----

// scores [kTileRows] of one query -> probabilities exp(score - max), 0 beyond `valid`; returns the factor by
// which what was summed before must shrink.
float softmax_tile(float* scores, int valid, float scale, SoftmaxState& state, float* logits) {
  const hn::ScalableTag<float> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int i = 0; i < valid; ++i) scores[i] *= scale;
  if (logits) std::memcpy(logits, scores, sizeof(float) * static_cast<size_t>(valid));
  for (int i = valid; i < kTileRows; ++i) scores[i] = -INFINITY;
  auto top = hn::Load(d, scores);
  for (int i = lanes; i < kTileRows; i += lanes) top = hn::Max(top, hn::Load(d, scores + i));
  const float tile_max = hn::GetLane(hn::MaxOfLanes(d, top));
  float shrink = 1.0f;
  if (tile_max > state.max) {
    shrink = state.sum > 0.0f ? std::exp(state.max - tile_max) : 0.0f;
    state.max = tile_max;
  }
  const auto max = hn::Set(d, state.max);
  auto total = hn::Zero(d);
  for (int i = 0; i < kTileRows; i += lanes) {
    const auto p = hn::Exp(d, hn::Sub(hn::Load(d, scores + i), max));
    hn::Store(p, d, scores + i);
    total = hn::Add(total, p);
  }
  for (int i = valid; i < kTileRows; ++i) scores[i] = 0.0f;
  state.sum = state.sum * shrink + hn::GetLane(hn::SumOfLanes(d, total));
  return shrink;
}

// ---- values ----

template <int kQueries, int kVectors, class D, class Load>
HWY_INLINE void value_block(D d, Load load, const std::byte* const* v, int rows, const float* p, int at,
                            int head_dim, float* sum) {
  using V = hn::Vec<D>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  V acc[kQueries][kVectors];
  for (int r = 0; r < kQueries; ++r) {
    for (int x = 0; x < kVectors; ++x) acc[r][x] = hn::LoadU(d, sum + r * head_dim + at + x * lanes);
  }
  for (int j = 0; j < rows; ++j) {
    V value[kVectors];
    for (int x = 0; x < kVectors; ++x) value[x] = load(d, v[j], at + x * lanes);
    for (int r = 0; r < kQueries; ++r) {
      const V weight = hn::Set(d, p[r * kTileRows + j]);
      for (int x = 0; x < kVectors; ++x) acc[r][x] = hn::MulAdd(weight, value[x], acc[r][x]);
    }
  }
  for (int r = 0; r < kQueries; ++r) {
    for (int x = 0; x < kVectors; ++x) hn::StoreU(acc[r][x], d, sum + r * head_dim + at + x * lanes);
  }
}

template <int kQueries, class D, class Load>
void value_rows(D d, Load load, const std::byte* const* v, int rows, const float* p, int head_dim,
                float* sum) {
  const int lanes = static_cast<int>(hn::Lanes(d));
  int at = 0;
  for (; at + 4 * lanes <= head_dim; at += 4 * lanes)
    value_block<kQueries, 4>(d, load, v, rows, p, at, head_dim, sum);
  for (; at < head_dim; at += lanes) value_block<kQueries, 1>(d, load, v, rows, p, at, head_dim, sum);
}

template <class D, class Load>
void value_run(D d, Load load, const Tile& tile, const Run& run, const AttentionTask& task, int head_dim,
               const float* scores) {
  const std::byte* const* v = tile.v + run.first;
  const int queries = static_cast<int>(task.queries);
  for (int r = 0; r < queries;) {
    const int step = queries - r >= 4 ? 4 : queries - r >= 2 ? 2 : 1;
    const float* p = scores + r * kTileRows + run.first;
    float* sum = task.sum + int64_t{r} * head_dim;
    if (step == 4) {
      value_rows<4>(d, load, v, run.count, p, head_dim, sum);
    } else if (step == 2) {
      value_rows<2>(d, load, v, run.count, p, head_dim, sum);
    } else {
      value_rows<1>(d, load, v, run.count, p, head_dim, sum);
    }
    r += step;
  }
}

// ---- one task ----

template <class D>
void run_tiles(D d, const AttentionTask& task, int head_dim) {
  Scratch scratch;  // not initialised: only what is written is read
  Tile tile;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  if (!task.resume) {
    std::fill_n(task.state, task.queries, SoftmaxState());
    std::fill_n(task.sum, task.queries * head_dim, 0.0f);
  }
  SpanCursor at = task.start;
  for (int64_t row = task.row_begin; row < task.row_end; row += kTileRows) {
    const int rows = static_cast<int>(std::min<int64_t>(kTileRows, task.row_end - row));
    next_tile(task.spans, at, rows, head_dim, scratch, tile);
    for (int i = 0; i < tile.runs; ++i) {
      with_load(tile.run[i].k.format,
                [&](auto load) { score_run(d, load, tile, tile.run[i], task, head_dim, scratch.scores); });
    }
    for (int64_t r = 0; r < task.queries; ++r) {
      float* scores = scratch.scores + r * kTileRows;
      const int valid = static_cast<int>(std::clamp<int64_t>(task.visible_rows(r) - row, 0, rows));
      if (valid == 0) {  // this query sees nothing here; exp(-inf - -inf) would be NaN
        std::fill_n(scores, kTileRows, 0.0f);
        continue;
      }
      float* logits = task.logits ? task.logits + r * task.logits_stride + row : nullptr;
      const float shrink = softmax_tile(scores, valid, scale, task.state[r], logits);
      if (shrink != 1.0f) {
        for (int x = 0; x < head_dim; ++x) task.sum[r * head_dim + x] *= shrink;
      }
    }
    for (int i = 0; i < tile.runs; ++i) {
      with_load(tile.run[i].v.format,
                [&](auto load) { value_run(d, load, tile, tile.run[i], task, head_dim, scratch.scores); });
    }
  }
}

void run_task(const AttentionTask& task, int head_dim) {
  const hn::ScalableTag<float> full;
  if (head_dim % static_cast<int>(hn::Lanes(full)) == 0) return run_tiles(full, task, head_dim);
  run_tiles(hn::CappedTag<float, 8>(), task, head_dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv {
HWY_EXPORT(run_task);
void run_task_simd(const AttentionTask& task, int head_dim) {
  HWY_DYNAMIC_DISPATCH(run_task)(task, head_dim);
}
}  // namespace kv
#endif
