// The vector attention path, compiled once for each instruction set and picked at run time.
//
// A thread takes tasks one after another, and each goes tile by tile: scores of kTileRows keys for all its
// queries, online softmax, weighted values. Rows are read through a list of pointers, so that the loops do
// not know whether a tile lies in one span or in many, and while one side is worked on, memory is asked for
// the other. Rows that no loop can read directly are decoded to f32 scratch first.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/attention_task.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/tile.h"
#include "kernels/encoding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_simd.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention_codes-inl.h"
#include "kernels/cpu/attention_floats-inl.h"
#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/softmax-inl.h"
#include "kernels/cpu/tile-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kPadding = 8;  // rows that a loop may look at past the last
constexpr int kPaddedRows = kTileRows + kPadding;

struct Scratch {
  HWY_ALIGN float scores[kQueryBlock * kScoreStride];
  HWY_ALIGN float weights[kScoreStride], largest_scale[kScoreStride];
  HWY_ALIGN float decoded[kTileRows * kMaxHeadDim];
  HWY_ALIGN float row_scale[kScoreStride], row_zero[kScoreStride];
  HWY_ALIGN float channel_scale[kMaxHeadDim], channel_middle[kMaxHeadDim];
  HWY_ALIGN float scaled_query[kQueryBlock * kMaxHeadDim];
  BlockScales blocks;
  CodedQueries queries;
  CodedWeights coded_weights;
  bool queries_are_coded = false;  // with `coded`'s layout
  Encoding coded;
};

template <class D>
class TaskRunner {
 public:
  TaskRunner(D d, int head_dim, Scratch& scratch) : d_(d), head_dim_(head_dim), s_(scratch) {}

  // Each tile is located while the one before is still to be worked on, so that its rows can be asked for:
  // the next task is claimed before this one starts.
  void run(TaskQueue& queue) {
    const AttentionTask* following = queue.claim();
    if (!following) return;
    SpanCursor at;
    locate_first(*following, at);
    while (following) {
      task_ = following;
      following = queue.claim();
      start_task();
      if (task_->row_begin >= task_->row_end && following) locate_first(*following, at);
      for (int64_t row = task_->row_begin; row < task_->row_end; row += kTileRows) {
        std::swap(tile_, next_);
        if (row + kTileRows < task_->row_end) {
          locate(*task_, at, row + kTileRows);
        } else if (following) {
          locate_first(*following, at);
        }
        if (task_->weights) ask_for_weights(row);
        for (int i = 0; i < tile_->runs; ++i) score(*tile_, tile_->run[i]);
        softmax(row, tile_->rows);
        for (int i = 0; i < tile_->runs; ++i) add_values(*tile_, tile_->run[i]);
      }
    }
  }

 private:
  void start_task() {
    s_.queries_are_coded = false;
    queries_are_finite_ = are_finite(task_->query(0, head_dim_), task_->queries * head_dim_);
    if (task_->resume) return;
    std::fill_n(task_->state, task_->queries, SoftmaxState());
    std::fill_n(task_->sum, task_->queries * head_dim_, 0.0f);
  }

  // Where the tile's weights go was last read by any thread: softmax's stores would wait for it.
  [[gnu::always_inline]] void ask_for_weights(int64_t row) const {
    for (int64_t r = 0; r < task_->queries; ++r) {
      const float* weights = task_->weights + r * task_->weights_stride + row;
      for (int i = 0; i < tile_->rows; i += 16) __builtin_prefetch(weights + i, 1);
    }
  }

  void locate(const AttentionTask& task, SpanCursor& at, int64_t row) {
    const int rows = static_cast<int>(std::clamp<int64_t>(task.row_end - row, 0, kTileRows));
    locate_tile(task.spans, head_dim_, at, rows, *next_);
    // A tile of one run is the rule; asking ahead needs no more.
    const Run& run = next_->run[0];
    if (next_->runs) ahead_.add(*next_, row_bytes(run.k), row_bytes(run.v));
  }
  void locate_first(const AttentionTask& task, SpanCursor& at) {
    at = task.start;
    locate(task, at, task.row_begin);
  }

  int64_t row_bytes(const Encoding& e) const { return unit_data_bytes(e, head_dim_) / e.group; }

  // The pointers of a run's rows, with copies of the last one behind them where a loop would look further.
  static const std::byte* const* pad(const std::byte* const* rows, int count, const std::byte** room) {
    if (count % kPadding == 0) return rows;
    std::copy_n(rows, count, room);
    std::fill_n(room + count, kPadding, rows[count - 1]);
    return room;
  }

  // Whether the loops of floats cannot read the run's rows as they are.
  bool must_decode(const TileSide& side, Format format, const Run& run) const {
    return !is_float(format) ||
           (format == Format::kFp8E4M3 && holds_nan(side.row + run.first, run.count, head_dim_));
  }

  // A run's rows as f32, and pointers to them.
  const std::byte* const* decode(const TileSide& side, const Encoding& e, const Run& run,
                                 const std::byte** rows) const {
    decode_tile_rows(side, e, head_dim_, run.first, run.count, s_.decoded);
    for (int i = 0; i < run.count + kPadding; ++i) {
      const int64_t row = std::min(i, run.count - 1);
      rows[i] = reinterpret_cast<const std::byte*>(s_.decoded + row * head_dim_);
    }
    return rows;
  }

  // ---- scores ----

  void score(const Tile& tile, const Run& run) {
    if (is_code(run.k, head_dim_) && queries_are_finite_) {
      bool done = false;
      with_layout(run.k, head_dim_, [&](auto layout, auto di, auto pack) KV_ATTR {
        done = score_codes<decltype(layout), decltype(pack)::value>(di, tile, run);
      });
      if (done) return;
    }
    const std::byte* room[kPaddedRows];
    float* scores = s_.scores + run.first;
    const bool decoded = must_decode(tile.k, run.k.format, run);
    const std::byte* const* keys =
        decoded ? decode(tile.k, run.k, run, room) : pad(tile.k.row + run.first, run.count, room);
    with_load(run.k.format, decoded, [&](auto load) KV_ATTR {
      score_floats(d_, load, keys, run.count, *task_, head_dim_, ahead_, scores);
    });
    if (decoded) return;
    const float* scale = float_row_scales(tile.k, run.k.format, run.first, run.count, s_.row_scale);
    if (!scale) return;
    for (int64_t r = 0; r < task_->queries; ++r) {
      for (int j = 0; j < run.count; ++j) scores[r * kScoreStride + j] *= scale[j];
    }
  }

  // False, and nothing done, if a scale is not finite: its rows are for the decoding path, which keeps NaN.
  template <class Layout, int kPack, class DI>
  bool score_codes(DI di, const Tile& tile, const Run& run) {
    if (run.k.format == Format::kChannel) return score_channel<Layout, kPack>(di, tile, run);
    if (!load_scales<Layout>(tile.k, run.k, run.first, run.count)) return false;
    if (!s_.queries_are_coded || !(s_.coded == run.k)) {
      for (int r = 0; r < task_->queries; ++r) {
        const float* q = task_->query(r, head_dim_);
        code_query<Layout, kPack>(di, q, largest_magnitude(d_, q, head_dim_), head_dim_, r, s_.queries);
        s_.queries.offset[r] = run.k.affine ? sum_of(q) : 0.0f;
      }
      s_.queries_are_coded = true;
      s_.coded = run.k;
    }
    const std::byte* room[kPaddedRows];
    const std::byte* const* keys = pad(tile.k.row + run.first, run.count, room);
    score_rows<Layout, kPack>(di, keys, run.count, s_.scores + run.first);
    for (int r = 0; r < task_->queries; ++r) {
      float* scores = s_.scores + r * kScoreStride + run.first;
      const float step = s_.queries.step[r], sum = s_.queries.offset[r];
      if constexpr (Layout::kWordsPerBlock != 0) {
        for (int j = 0; j < run.count; ++j) scores[j] *= step;
      } else {
        for (int j = 0; j < run.count; ++j)
          scores[j] = scores[j] * (step * s_.row_scale[j]) + s_.row_zero[j] * sum;
      }
    }
    return true;
  }

  template <class Layout, int kPack, class DI>
  void score_rows(DI di, const std::byte* const* keys, int count, float* scores) {
    constexpr int kStep = 4 * kPack;
    const int queries = static_cast<int>(task_->queries);
    const int vectors = head_dim_ * Layout::kBits / 32 * kPack / width(di);
    Ahead ahead = ahead_;  // a local one can live in registers
    ahead.begin_part(int64_t{(count + kStep - 1) / kStep} * vectors * query_blocks(queries));
    for (int j = 0; j < count; j += kStep) {
      int r = 0;
      const auto block = [&](auto some) KV_INLINE {
        constexpr int kQueries = decltype(some)::value;
        for (; r + kQueries <= queries; r += kQueries)
          score_codes_block<Layout, kPack, kQueries>(di, keys + j, s_.blocks, j, head_dim_, s_.queries, r,
                                                     ahead, scores + r * kScoreStride + j);
      };
      block(std::integral_constant<int, 4>());
      block(std::integral_constant<int, 2>());
      block(std::integral_constant<int, 1>());
    }
    ahead_ = ahead;
  }

  // kChannel, a unit at a time.
  template <class Layout, int kPack, class DI>
  bool score_channel(DI di, const Tile& tile, const Run& run) {
    s_.queries_are_coded = false;
    for (int done = 0; done < run.count;) {
      const int first = run.first + done;
      int count = 1;
      while (done + count < run.count && tile.k.meta[first + count] == tile.k.meta[first]) ++count;
      if (!load_channel_scales(tile.k.meta[first], static_cast<float>(kMiddle<Layout>))) return false;
      float largest[kQueryBlock];
      for (int r = 0; r < task_->queries; ++r) largest[r] = scale_query(r);
      for (int r = 0; r < task_->queries; ++r)
        code_query<Layout, kPack>(di, s_.scaled_query + r * head_dim_, largest[r], head_dim_, r, s_.queries);
      const std::byte* room[kPaddedRows];
      const std::byte* const* keys = pad(tile.k.row + first, count, room);
      score_rows<Layout, kPack>(di, keys, count, s_.scores + first);
      for (int r = 0; r < task_->queries; ++r) {
        float* scores = s_.scores + r * kScoreStride + first;
        for (int j = 0; j < count; ++j) scores[j] = scores[j] * s_.queries.step[r] + s_.queries.offset[r];
      }
      done += count;
    }
    return true;
  }

  bool are_finite(const float* x, int64_t n) const {
    auto probe = hn::Zero(d_);
    for (int64_t i = 0; i < n; i += lanes()) probe = hn::MulAdd(hn::LoadU(d_, x + i), hn::Zero(d_), probe);
    return hn::GetLane(hn::SumOfLanes(d_, probe)) == 0.0f;
  }

  float sum_of(const float* x) const {
    auto sum = hn::Zero(d_);
    for (int i = 0; i < head_dim_; i += lanes()) sum = hn::Add(sum, hn::LoadU(d_, x + i));
    return hn::GetLane(hn::SumOfLanes(d_, sum));
  }

  // Query r * scale -> scaled_query, what the middles of the channels' grids add to each score -> offset;
  // returns the largest magnitude of scaled_query.
  float scale_query(int r) {
    const float* q = task_->query(r, head_dim_);
    float* out = s_.scaled_query + r * head_dim_;
    auto offsets = hn::Zero(d_), top = hn::Zero(d_);
    for (int i = 0; i < head_dim_; i += lanes()) {
      const auto x = hn::LoadU(d_, q + i), scaled = hn::Mul(x, hn::Load(d_, s_.channel_scale + i));
      hn::StoreU(scaled, d_, out + i);
      top = hn::Max(top, hn::Abs(scaled));
      offsets = hn::MulAdd(x, hn::Load(d_, s_.channel_middle + i), offsets);
    }
    s_.queries.offset[r] = hn::GetLane(hn::SumOfLanes(d_, offsets));
    return hn::GetLane(hn::MaxOfLanes(d_, top));
  }

  template <class DI>
  static int width(DI di) {
    return static_cast<int>(hn::Lanes(di));
  }
  int lanes() const { return static_cast<int>(hn::Lanes(d_)); }

  // A unit's scales, and the middles of its channels' grids. False if a scale is not finite.
  bool load_channel_scales(const std::byte* meta, float middle_code) {
    const LoadF16 load;  // up to 8 bits, they are f16
    auto probe = hn::Zero(d_);
    for (int i = 0; i < head_dim_; i += lanes()) {
      const auto scale = load(d_, meta, i), zero = load(d_, meta, head_dim_ + i);
      hn::Store(scale, d_, s_.channel_scale + i);
      hn::Store(hn::MulAdd(hn::Set(d_, middle_code), scale, zero), d_, s_.channel_middle + i);
      probe = hn::MulAdd(scale, hn::Zero(d_), probe);
    }
    return hn::GetLane(hn::SumOfLanes(d_, probe)) == 0.0f;
  }

  // Scales of a run's rows, and the middles of their grids. False if one is not finite.
  template <class Layout>
  bool load_scales(const TileSide& side, const Encoding& e, int first, int count) {
    const std::byte* const* meta = side.meta + first;
    if constexpr (Layout::kWordsPerBlock != 0) {
      return load_block_scales(meta, count, head_dim_ / kGgmlBlock, s_.blocks);
    } else {
      // Number by number: a vector load would wait for the stores just made.
      uint32_t not_finite = 0;
      for (int j = 0; j < count; ++j) {
        const auto bits = kv::load<uint32_t>(meta[j], 0);
        not_finite |= static_cast<uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
        const float scale = std::bit_cast<float>(bits);
        s_.row_scale[j] = scale;
        if (e.affine) s_.row_zero[j] = kv::load<float>(meta[j], 1) + scale * kMiddle<Layout>;
      }
      if (!e.affine) std::fill_n(s_.row_zero, count, 0.0f);
      return not_finite == 0;
    }
  }

  // ---- softmax ----

  void softmax(int64_t row, int rows) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim_));
    for (int64_t r = 0; r < task_->queries; ++r) {
      float* scores = s_.scores + r * kScoreStride;
      const int valid = static_cast<int>(std::clamp<int64_t>(task_->visible_rows(r) - row, 0, rows));
      if (valid == 0) {  // this query sees nothing here; exp(-inf - -inf) would be NaN
        std::fill_n(scores, kTileRows, 0.0f);
        continue;
      }
      float* weights = task_->weights ? task_->weights + r * task_->weights_stride + row : nullptr;
      const float shrink = softmax_tile(scores, valid, scale, task_->state[r], weights);
      if (weights) task_->bases[r * task_->bases_stride + row / kTileRows] = task_->state[r].max;
      if (shrink == 1.0f) continue;
      for (int x = 0; x < head_dim_; ++x) task_->sum[r * head_dim_ + x] *= shrink;
    }
  }

  // ---- values ----

  void add_values(const Tile& tile, const Run& run) {
    if (is_code(run.v, head_dim_) && run.v.format != Format::kChannel) {
      bool done = false;
      with_layout(run.v, head_dim_, [&](auto layout, auto di, auto pack) KV_ATTR {
        done = add_codes<decltype(layout), decltype(pack)::value>(di, tile, run);
      });
      if (done) return;
    }
    const std::byte* room[kPaddedRows];
    const bool decoded = must_decode(tile.v, run.v.format, run);
    const std::byte* const* rows =
        decoded ? decode(tile.v, run.v, run, room) : pad(tile.v.row + run.first, run.count, room);
    float* p = s_.scores + run.first;
    const float* scale =
        decoded ? nullptr : float_row_scales(tile.v, run.v.format, run.first, run.count, s_.row_scale);
    for (int64_t r = 0; scale && r < task_->queries; ++r) {
      for (int j = 0; j < run.count; ++j) p[r * kScoreStride + j] *= scale[j];
    }
    with_load(run.v.format, decoded, [&](auto load) KV_ATTR {
      add_floats(d_, load, rows, run.count, p, *task_, head_dim_, ahead_);
    });
  }

  template <class Layout, int kPack, class DI>
  bool add_codes(DI di, const Tile& tile, const Run& run) {
    if (!load_scales<Layout>(tile.v, run.v, run.first, run.count)) return false;
    const std::byte* room[kPaddedRows];
    const std::byte* const* rows = pad(tile.v.row + run.first, run.count, room);
    if constexpr (Layout::kWordsPerBlock != 0)
      largest_scales(s_.blocks, run.count, head_dim_ / kGgmlBlock, s_.largest_scale);
    const int queries = static_cast<int>(task_->queries), pairs = (run.count + 1) / 2;
    Ahead ahead = ahead_;
    ahead.begin_part(int64_t{pairs} * (head_dim_ / 4 / width(di)) * query_blocks(queries));
    int r = 0;
    const auto block = [&](auto some) KV_INLINE {
      constexpr int kQueries = decltype(some)::value;
      for (; r + kQueries <= queries; r += kQueries) {
        for (int i = 0; i < kQueries; ++i) weigh<Layout>(run, r + i, i);
        add_code_values<Layout, kPack, kQueries>(di, rows, pairs, s_.coded_weights, head_dim_, ahead,
                                                 task_->sum + int64_t{r} * head_dim_);
      }
    };
    block(std::integral_constant<int, 4>());
    block(std::integral_constant<int, 2>());
    block(std::integral_constant<int, 1>());
    ahead_ = ahead;
    return true;
  }

  // The run's probabilities for query r, times the rows' scales -> coded weights `at`.
  template <class Layout>
  void weigh(const Run& run, int r, int at) {
    const float* p = s_.scores + r * kScoreStride + run.first;
    float* weights = s_.weights;
    std::fill_n(weights + run.count / 16 * 16, 16, 0.0f);
    if constexpr (Layout::kWordsPerBlock != 0) {
      std::copy_n(p, run.count, weights);
      code_block_weights<Layout>(weights, s_.blocks, s_.largest_scale, run.count, head_dim_ / kGgmlBlock, at,
                                 s_.coded_weights);
    } else {
      for (int j = 0; j < run.count; ++j) weights[j] = p[j] * s_.row_scale[j];
      add_zeros(p, run, r);
      code_weights<Layout>(weights, run.count, at, s_.coded_weights);
    }
  }

  // What the rows' zero points add to every element of a query's sum.
  void add_zeros(const float* p, const Run& run, int64_t r) {
    if (!run.v.affine) return;
    auto zeros = hn::Zero(d_);
    int j = 0;
    for (; j + lanes() <= run.count; j += lanes())
      zeros = hn::MulAdd(hn::LoadU(d_, p + j), hn::Load(d_, s_.row_zero + j), zeros);
    float zero = hn::GetLane(hn::SumOfLanes(d_, zeros));
    for (; j < run.count; ++j) zero += p[j] * s_.row_zero[j];
    for (int x = 0; x < head_dim_; ++x) task_->sum[r * head_dim_ + x] += zero;
  }

  D d_;
  const AttentionTask* task_ = nullptr;
  bool queries_are_finite_ = true;  // else there are no codes for them
  int head_dim_;
  Scratch& s_;
  Tile tiles_[2];
  Tile *tile_ = &tiles_[0], *next_ = &tiles_[1];
  Ahead ahead_;
};

void run_tasks(TaskQueue& queue, int head_dim) {
  Scratch scratch;  // not initialised: only what is written is read
  const hn::ScalableTag<float> full;
  if (head_dim % static_cast<int>(hn::Lanes(full)) == 0) {
    TaskRunner<decltype(full)>(full, head_dim, scratch).run(queue);
  } else {
    const hn::CappedTag<float, 8> eight;
    TaskRunner<decltype(eight)>(eight, head_dim, scratch).run(queue);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#else
namespace kv::N_SCALAR {
void run_tasks(TaskQueue& queue, int head_dim) { run_tasks_scalar(queue, head_dim); }
}  // namespace kv::N_SCALAR
#endif

#if HWY_ONCE
namespace kv {
HWY_EXPORT(run_tasks);
void run_tasks_simd(TaskQueue& queue, int head_dim) { HWY_DYNAMIC_DISPATCH(run_tasks)(queue, head_dim); }
}  // namespace kv
#endif
