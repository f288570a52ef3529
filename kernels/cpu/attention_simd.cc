// The vector attention path, compiled once for each instruction set and picked at run time.
//
// A thread takes tasks one after another, and each goes tile by tile: scores of kTileRows keys for all its
// queries, online softmax, weighted values. Rows are read through a list of pointers, so that the loops do
// not know whether a tile lies in one span or in many, and while one side is worked on, memory is asked for
// the other. Rows that no loop can read directly are decoded to f32 scratch first.
#include <algorithm>
#include <cmath>
#include <optional>

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

struct Scratch {
  HWY_ALIGN float scores[kQueryBlock * kScoreStride];
  HWY_ALIGN float decoded[kTileRows * kMaxHeadDim];
  HWY_ALIGN float row_scale[kScoreStride];
  CodeScratch codes;
  PackedQueries packed;
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
      order_sums(1);
    }
  }

 private:
  void start_task() {
    s_.codes.queries_are_coded = false;
    packed_for_.reset();
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

  // A run's rows as f32, and pointers to them.
  const std::byte* const* decode(const TileSide& side, const Encoding& e, const Run& run,
                                 const std::byte** rows) const {
    decode_tile_rows(side, e, head_dim_, run.first, run.count, s_.decoded);
    for (int i = 0; i < run.count + kRowPadding; ++i) {
      const int64_t row = std::min(i, run.count - 1);
      rows[i] = reinterpret_cast<const std::byte*>(s_.decoded + row * head_dim_);
    }
    return rows;
  }

  // ---- scores ----

  void score(const Tile& tile, const Run& run) {
    if (is_code(run.k, head_dim_) && queries_are_finite_ &&
        score_codes(tile.k, run, code_work(), s_.scores + run.first))
      return;
    const std::byte* room[kPaddedRows];
    float* scores = s_.scores + run.first;
    const bool decoded = !is_float(run.k.format);
    const std::byte* const* keys =
        decoded ? decode(tile.k, run.k, run, room) : pad_rows(tile.k.row + run.first, run.count, room);
    with_load(d_, run.k.format, decoded, head_dim_, [&](auto load) KV_ATTR {
      const Format format = decoded ? Format::kF32 : run.k.format;
      if (packed_for_ != format) pack_queries(d_, load, *task_, head_dim_, s_.packed);
      packed_for_ = format;
      score_floats(d_, load, keys, run.count, s_.packed.q, static_cast<int>(task_->queries), head_dim_,
                   ahead_, scores);
    });
    if (decoded || !is_fp8(run.k.format)) return;
    fp8_row_scales(tile.k, run.first, run.count, s_.row_scale);
    for (int64_t r = 0; r < task_->queries; ++r) {
      const float restore = s_.packed.restore[r];
      for (int j = 0; j < run.count; ++j)
        scores[r * kScoreStride + j] = scores[r * kScoreStride + j] * restore * s_.row_scale[j];
    }
  }

  CodeWork code_work() { return {*task_, head_dim_, s_.codes, ahead_}; }

  bool are_finite(const float* x, int64_t n) const {
    auto probe = hn::Zero(d_);
    for (int64_t i = 0; i < n; i += lanes()) probe = hn::MulAdd(hn::LoadU(d_, x + i), hn::Zero(d_), probe);
    return hn::GetLane(hn::SumOfLanes(d_, probe)) == 0.0f;
  }

  int lanes() const { return static_cast<int>(hn::Lanes(d_)); }

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
      order_sums(1);
      if (add_codes(tile.v, run, code_work(), s_.scores + run.first)) return;
    }
    const std::byte* room[kPaddedRows];
    const bool fp8 = is_fp8(run.v.format);
    const bool decoded =
        !is_float(run.v.format) ||
        (fp8 && fp8_row_scales(tile.v, run.first, run.count, s_.row_scale) > kLargestWeightedScale);
    const std::byte* const* rows =
        decoded ? decode(tile.v, run.v, run, room) : pad_rows(tile.v.row + run.first, run.count, room);
    float* p = s_.scores + run.first;
    with_load(d_, run.v.format, decoded, head_dim_, [&](auto load) KV_ATTR {
      using Load = decltype(load);
      for (int64_t r = 0; fp8 && !decoded && r < task_->queries; ++r) {
        for (int j = 0; j < run.count; ++j) p[r * kScoreStride + j] *= Load::kFactor * s_.row_scale[j];
      }
      order_sums(Load::kVectors);
      add_floats(d_, load, rows, run.count, p, static_cast<int>(task_->queries), head_dim_, ahead_,
                 task_->sum);
    });
  }

  // Brings the task's sums into the order of a load of that many vectors.
  void order_sums(int vectors) {
    if (vectors == sums_order_) return;
    const int64_t n = task_->queries * head_dim_;
    if (sums_order_ == 2) undeal<2>(d_, task_->sum, n);
    if (sums_order_ == 4) undeal<4>(d_, task_->sum, n);
    if (vectors == 2) deal<2>(d_, task_->sum, n);
    if (vectors == 4) deal<4>(d_, task_->sum, n);
    sums_order_ = vectors;
  }

  D d_;
  const AttentionTask* task_ = nullptr;
  std::optional<Format> packed_for_;  // the queries have been packed for that load
  int sums_order_ = 1;                // that of a load of so many vectors
  bool queries_are_finite_ = true;    // else there are no codes for them
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
