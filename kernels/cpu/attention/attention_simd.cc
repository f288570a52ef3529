// The vector attention path of steps of a few tokens, compiled once for each instruction set and picked at run time.
//
// A thread takes tasks one after another, or interleaves the tiles of several where the rows of heads are neighbours in
// short spans (PiecewiseAttention::batch_tasks). Each task goes tile by tile: scores of kTileRows keys for all its
// queries, online softmax, weighted values. Rows are read through a list of pointers, so that the loops do not know
// whether a tile lies in one span or in many, and while one side is worked on, the other is prefetched. Rows that no
// loop can read directly are decoded to f32 scratch first.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/attention/float_work.h"
#include "kernels/cpu/attention/multiplied_codes.h"
#include "kernels/cpu/attention/tile.h"
#include "kernels/cpu/targets.h"
#include "kernels/format/descriptor.h"
#include "kernels/format/encoding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_simd.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/interleaved_codes-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"
#include "kernels/cpu/attention/score_cap-inl.h"
#include "kernels/cpu/attention/softmax-inl.h"
#include "kernels/cpu/attention/tile-inl.h"
#include "kernels/cpu/attention/tile_stream-inl.h"
#include "kernels/cpu/attributes-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Scratch {
  HWY_ALIGN float scores[kQueryBlock * kScoreStride];
  HWY_ALIGN float decoded[kTileRows * kMaxHeadDim];
  CodeScratch codes;
  CodedQueriesScratch coded;
  PackedQueriesScratch packed;
};

// The state of a task between two of its tiles.
struct TaskInWork {
  PackedQueries packed;
  CodedQueries coded;
  SumOrder order;
  bool queries_are_finite;  // else they are not coded
};

inline bool all_finite(const float* x, int64_t n) {
  const hn::CappedTag<float, 8> d;
  auto probe = hn::Zero(d);
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d)))
    probe = hn::MulAdd(hn::LoadU(d, x + i), hn::Zero(d), probe);
  return hn::AllTrue(d, hn::Eq(probe, hn::Zero(d)));
}

// True if one of FP8 rows' scales [count], times a load's factor, makes a weight that overflows f32.
inline bool exceeds_weights(const float* row_scale, int count) {
  int many = 0;
  for (int j = 0; j < count; ++j) many += row_scale[j] > 0x1p7f;
  return many > 0;
}

class TaskRunner {
 public:
  TaskRunner(TaskQueue& queue, int head_dim, Scratch& scratch)
      : stream_(queue, head_dim), head_dim_(head_dim), s_(scratch) {}

  void run() {
    while (const TileBatch* batch = stream_.next()) {
      for (int i = 0; i < batch->tiles; ++i) work_on(*batch, batch->tile[i]);
    }
  }

 private:
  void work_on(const TileBatch& batch, const LocatedTile& tile) {
    task_ = tile.task;
    work_ = &in_work_[tile.in_batch];
    if (tile.row == task_->row_begin) start_task(tile.in_batch);
    if (task_->weights) prefetch_weights(tile);
    stream_.prefetcher().begin_side(batch.k_lines / batch.tiles);
    for (int i = 0; i < tile.runs; ++i) score(tile, tile.run[i]);
    softmax(tile.row, tile.rows);
    stream_.prefetcher().begin_side(batch.v_lines / batch.tiles);
    for (int i = 0; i < tile.runs; ++i) add_values(tile, tile.run[i]);
    if (tile.row + kTileRows >= task_->row_end) restore_order(float_work(), work_->order);
  }

  void start_task(size_t in_batch) {
    const auto first_query = static_cast<int64_t>(in_batch) * task_->queries;
    *work_ = {.packed = s_.packed.from(first_query, head_dim_),
              .coded = s_.coded.from(first_query),
              .order = {},
              .queries_are_finite = all_finite(task_->query(0, head_dim_), task_->queries * head_dim_)};
  }

  // Prefetches the tile's weights for writing: another thread may have read those cache lines last, and
  // softmax's stores would wait for them.
  [[gnu::always_inline]] void prefetch_weights(const LocatedTile& tile) const {
    for (int64_t r = 0; r < task_->queries; ++r) {
      const float* weights = task_->weights + r * task_->weights_stride + tile.row;
      for (int i = 0; i < tile.rows; i += 16) __builtin_prefetch(weights + i, 1);
    }
  }

  bool is_int8() const { return multiplies_int8(task_->problem->arithmetic, task_->problem->n); }

  CodeWork code_work() { return {*task_, head_dim_, s_.codes, work_->coded, stream_.prefetcher()}; }
  FloatWork float_work() { return {*task_, head_dim_, stream_.prefetcher()}; }

  // Pointers, in `scratch`, to a run's rows as stored or, if `decoded`, as f32.
  FloatRows float_rows(const TileSide& side, const Encoding& e, const Run& run, bool decoded,
                       const float* row_scale, const std::byte** scratch) {
    if (!decoded) return {e.format, pad_rows(side.row + run.first, run.count, scratch), run.count, row_scale};
    decode_tile_rows(side, e, head_dim_, run.first, run.count, s_.decoded);
    for (int i = 0; i < run.count + kRowPadding; ++i) {
      const int64_t row = std::min(i, run.count - 1);
      scratch[i] = reinterpret_cast<const std::byte*>(s_.decoded + row * head_dim_);
    }
    return {Format::kF32, scratch, run.count, nullptr, true};
  }

  // The scales of FP8 rows, else null. A NaN scale marks a row with a NaN, and is kept.
  const float* row_scales(const TileSide& side, const FormatDescriptor& format, const Run& run) const {
    if (!has_float_row_scale(format.elements, format.scaling)) return nullptr;
    load_row_scales(side.meta + run.first, run.count, false, 0, s_.codes.rows);
    return s_.codes.rows.scale;
  }

  // ---- scores ----

  bool score_codes(const Tile& tile, const Run& run, const FormatDescriptor& format, float* scores) {
    const Scaling scaling = format.scaling;
    if (scaling == Scaling::kBlock)
      return (is_int8() && format.middle_code == 0 ? score_blocks_int8 : score_blocks)(tile.k, run,
                                                                                       code_work(), scores);
    if (scaling == Scaling::kChannel) return score_channels(tile.k, run, code_work(), scores);
    return score_tokens(tile.k, run, code_work(), scores);
  }

  void score(const Tile& tile, const Run& run) {
    const FormatDescriptor& format = descriptor_of(run.k.format);
    float* scores = s_.scores + run.first;
    if (multiplies_k_codes(run.k, head_dim_) && work_->queries_are_finite &&
        score_codes(tile, run, format, scores))
      return;
    const std::byte* scratch[kPaddedRows];
    const bool decoded = format.elements != Elements::kFloats;
    const FloatRows rows = float_rows(tile.k, run.k, run, decoded, row_scales(tile.k, format, run), scratch);
    score_floats(rows, float_work(), work_->packed, scores);
  }

  // ---- softmax ----

  void softmax(int64_t row, int rows) {
    const float cap = task_->problem->score_cap, to_scores = 1.0f / std::sqrt(static_cast<float>(head_dim_));
    const float scale = cap > 0 ? 1.0f : to_scores;
    for (int64_t r = 0; r < task_->queries; ++r) {
      float* scores = s_.scores + r * kScoreStride;
      const int valid = static_cast<int>(std::clamp<int64_t>(task_->visible_rows(r) - row, 0, rows));
      if (valid == 0) {  // this query sees nothing here; exp(-inf - -inf) would be NaN
        std::fill_n(scores, kTileRows, 0.0f);
        continue;
      }
      if (cap > 0) cap_scores(scores, kTileRows, to_scores, cap);
      float* weights = task_->weights ? task_->weights + r * task_->weights_stride + row : nullptr;
      const float rescale = softmax_tile(scores, valid, scale, task_->state[r], weights);
      if (weights) task_->bases[r * task_->bases_stride + row / kTileRows] = task_->state[r].max;
      if (rescale == 1.0f) continue;
      for (int x = 0; x < head_dim_; ++x) task_->sum[r * head_dim_ + x] *= rescale;
    }
  }

  // ---- values ----

  void add_values(const Tile& tile, const Run& run) {
    const FormatDescriptor& format = descriptor_of(run.v.format);
    float* p = s_.scores + run.first;
    if (multiplies_v_codes(run.v, head_dim_)) {
      restore_order(float_work(), work_->order);
      const bool blocks = format.scaling == Scaling::kBlock, int8 = is_int8() && format.middle_code == 0;
      const auto add_codes = blocks ? int8 ? add_blocks_int8 : add_blocks : add_tokens;
      if (add_codes(tile.v, run, code_work(), p)) return;
    }
    const std::byte* scratch[kPaddedRows];
    const float* row_scale = row_scales(tile.v, format, run);
    const bool decoded =
        format.elements != Elements::kFloats || (row_scale && exceeds_weights(row_scale, run.count));
    const FloatRows rows = float_rows(tile.v, run.v, run, decoded, row_scale, scratch);
    add_floats(rows, float_work(), work_->order, p);
  }

  TileStream stream_;
  int head_dim_;
  Scratch& s_;

  // The task whose tile is in work.
  const AttentionTask* task_ = nullptr;
  TaskInWork* work_ = nullptr;
  TaskInWork in_work_[kQueryBlock];
};

void run_tasks(TaskQueue& queue, int head_dim) {
  Scratch scratch;  // not initialised: only what is written is read
  TaskRunner(queue, head_dim, scratch).run();
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#else
namespace kv::cpu::N_SCALAR {
void run_tasks(TaskQueue& queue, int head_dim) { run_tasks_scalar(queue, head_dim); }
}  // namespace kv::cpu::N_SCALAR
#endif

#if HWY_ONCE
namespace kv::cpu {
HWY_EXPORT(run_tasks);
void run_tasks_simd(TaskQueue& queue, int head_dim) { HWY_DYNAMIC_DISPATCH(run_tasks)(queue, head_dim); }
}  // namespace kv::cpu
#endif
