// The vector attention path, compiled once for each instruction set and picked at run time.
//
// A thread takes tasks one after another, or several that take turns where the rows of heads lie side by side
// in short spans (PiecewiseAttention::put_tasks_together). Each goes tile by tile: scores of kTileRows keys
// for all its queries, online softmax, weighted values. Rows are read through a list of pointers, so that the
// loops do not know whether a tile lies in one span or in many, and while one side is worked on, memory is
// asked for the other. Rows that no loop can read directly are decoded to f32 scratch first.
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
#include "kernels/cpu/codes_scales-inl.h"
#include "kernels/cpu/softmax-inl.h"
#include "kernels/cpu/tile-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Scratch {
  HWY_ALIGN float scores[kQueryBlock * kScoreStride];
  HWY_ALIGN float decoded[kTileRows * kMaxHeadDim];
  CodeScratch codes;
  CodedQueriesRoom coded;
  PackedQueriesRoom packed;
};

// A tile, and whose it is.
struct LocatedTile : Tile {
  const AttentionTask* task;
  size_t turn;  // of the task, among those that belong together
  int64_t row;  // the first
};

// Tiles of tasks that take turns, which are asked for as one: piece by piece, each of all of them, since
// there their rows lie side by side. More than two at once are asked for no faster.
struct Round {
  static constexpr int kTiles = 2;

  LocatedTile tile[kTiles];
  int tiles = 0;
  Ahead::Stretch stretch[kTiles * 2 * kTileRows];
  size_t stretches = 0;
  int64_t k_lines = 0, v_lines = 0;  // of all tiles

  // What is to be asked for: K, then V.
  void list_stretches(int64_t k_bytes, int64_t v_bytes) {
    stretches = 0;
    lines_ = 0;
    list_side(&Tile::k, k_bytes);
    k_lines = lines_;
    list_side(&Tile::v, v_bytes);
    v_lines = lines_ - k_lines;
  }

 private:
  void list_side(TileSide Tile::*side, int64_t row_bytes) {
    for (int piece = 0, first = 0; first < tile[0].rows; first = tile[0].piece_end[piece++]) {
      for (int i = 0; i < tiles; ++i)
        list_rows((tile[i].*side).row + first, tile[0].piece_end[piece] - first, row_bytes);
    }
  }
  // Rows that follow each other are one stretch, as far as the last one tells: a wrong guess asks for other
  // lines and does no harm.
  void list_rows(const std::byte* const* row, int rows, int64_t bytes) {
    if (row[rows - 1] == row[0] + (rows - 1) * bytes) return list(row[0], rows * bytes);
    for (int i = 0; i < rows; ++i) list(row[i], bytes);
  }
  // Behind what was listed last, or somewhere else.
  void list(const std::byte* at, int64_t bytes) {
    const int lines = static_cast<int>((bytes + 63) / 64);
    const bool follows = stretches > 0 && at == end_;
    if (!follows) stretch[stretches++] = {at, 0};
    stretch[stretches - 1].lines += lines;
    lines_ += lines;
    end_ = at + bytes;
  }

  const std::byte* end_ = nullptr;  // of what was listed last
  int64_t lines_ = 0;               // so far
};

// What is kept of a task from its tile to its next one.
struct TaskInWork {
  PackedQueries packed;
  CodedQueries coded;
  bool queries_are_finite;  // else they are not coded
  int sums_order;           // that of a load of so many vectors
};

template <class D>
class TaskRunner {
 public:
  TaskRunner(D d, int head_dim, Scratch& scratch) : d_(d), head_dim_(head_dim), s_(scratch) {}

  // Each round of tiles is located while the one before is still to be worked on, so that its rows can be
  // asked for: the next tasks are claimed before these end.
  void run(TaskQueue& queue) {
    bool more = locate_round(queue);
    if (more) ahead_.lead(lines_out_of_turn());
    while (more) {
      std::swap(now_, next_);
      more = locate_round(queue);
      for (int i = 0; i < now_->tiles; ++i) work_on(now_->tile[i]);
    }
  }

 private:
  // How much later than in the order of requests work comes to a line, at most. Tiles of a round are asked
  // for together. Values of codes are worked on in strips of 64 bytes of all a tile's rows; only with_wide()
  // takes rows as a whole.
  int64_t lines_out_of_turn() const {
    const int64_t others = (next_->k_lines + next_->v_lines) * (next_->tiles - 1) / next_->tiles;
    const LocatedTile& tile = next_->tile[0];
    const Encoding& v = tile.run[0].v;
    const bool whole_rows = v.format == Format::kToken && tile.task->queries == 1;
    if (!is_code(v, head_dim_) || v.format == Format::kChannel || whole_rows) return others;
    return others + std::max<int64_t>(0, next_->v_lines / next_->tiles - tile.rows);
  }

  void work_on(const LocatedTile& tile) {
    task_ = tile.task;
    work_ = &in_work_[tile.turn];
    if (tile.row == task_->row_begin) start_task(tile.turn);
    if (task_->weights) ask_for_weights(tile);
    ahead_.begin_side(now_->k_lines / now_->tiles);
    for (int i = 0; i < tile.runs; ++i) score(tile, tile.run[i]);
    softmax(tile.row, tile.rows);
    ahead_.begin_side(now_->v_lines / now_->tiles);
    for (int i = 0; i < tile.runs; ++i) add_values(tile, tile.run[i]);
    if (tile.row + kTileRows >= task_->row_end) order_sums(1);
  }

  void start_task(size_t turn) {
    const auto first_query = static_cast<int64_t>(turn) * task_->queries;
    *work_ = {.packed = s_.packed.from(first_query, head_dim_),
              .coded = s_.coded.from(first_query),
              .queries_are_finite = are_finite(task_->query(0, head_dim_), task_->queries * head_dim_),
              .sums_order = 1};
  }

  // Where the tile's weights go was last read by any thread: softmax's stores would wait for it.
  [[gnu::always_inline]] void ask_for_weights(const LocatedTile& tile) const {
    for (int64_t r = 0; r < task_->queries; ++r) {
      const float* weights = task_->weights + r * task_->weights_stride + tile.row;
      for (int i = 0; i < tile.rows; i += 16) __builtin_prefetch(weights + i, 1);
    }
  }

  // False, and nothing located, if all tasks' tiles have been.
  bool locate_round(TaskQueue& queue) {
    if (turn_ == tasks_.size()) {
      turn_ = 0;
      row_ += kTileRows;
    }
    while (tasks_.empty() || row_ >= tasks_[0].row_end) {
      if (!claim_tasks(queue)) return false;
    }
    next_->tiles = 0;
    do locate(next_->tile[next_->tiles++]);
    while (++turn_ < tasks_.size() && next_->tiles < Round::kTiles);
    const Run& run = next_->tile[0].run[0];  // a tile of one run is the rule; asking ahead needs no more
    next_->list_stretches(row_bytes(run.k), row_bytes(run.v));
    ahead_.add({next_->stretch, next_->stretches});
    return true;
  }

  // The next tile of the task whose turn it is.
  void locate(LocatedTile& tile) {
    const AttentionTask& task = tasks_[turn_];
    tile.task = &task;
    tile.turn = turn_;
    tile.row = row_;
    const int rows = static_cast<int>(std::min<int64_t>(task.row_end - row_, kTileRows));
    SpanCursor& at = at_[turn_];
    locate_tile(task.spans, head_dim_, at, rows, tile);
    // Of short spans the list itself is long enough to be waited for.
    const auto* following = reinterpret_cast<const std::byte*>(task.spans.data() + at.span);
    ask_for(following, tile.pieces * static_cast<int64_t>(sizeof(Span)));
  }

  bool claim_tasks(TaskQueue& queue) {
    tasks_ = queue.claim();
    if (tasks_.empty()) return false;
    turn_ = 0;
    row_ = tasks_[0].row_begin;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const AttentionTask& task = tasks_[i];
      at_[i] = task.start;
      if (task.resume) continue;
      std::fill_n(task.state, task.queries, SoftmaxState());
      std::fill_n(task.sum, task.queries * head_dim_, 0.0f);
    }
    return true;
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

  // Those of the run's rows. NaN, which stands for a row of it, stays.
  const float* fp8_row_scales(const TileSide& side, const Run& run) const {
    load_row_scales(side.meta + run.first, run.count, false, 0, s_.codes.rows);
    return s_.codes.rows.scale;
  }

  // ---- scores ----

  void score(const Tile& tile, const Run& run) {
    if (is_code(run.k, head_dim_) && work_->queries_are_finite &&
        score_codes(tile.k, run, code_work(), s_.scores + run.first))
      return;
    const std::byte* room[kPaddedRows];
    float* scores = s_.scores + run.first;
    const bool decoded = !is_float(run.k.format);
    const std::byte* const* keys =
        decoded ? decode(tile.k, run.k, run, room) : pad_rows(tile.k.row + run.first, run.count, room);
    with_load(d_, run.k.format, decoded, head_dim_, [&](auto load) KV_ATTR {
      const Format format = decoded ? Format::kF32 : run.k.format;
      PackedQueries& packed = work_->packed;
      if (packed.packed_for != format) pack_queries(d_, load, *task_, head_dim_, packed);
      packed.packed_for = format;
      score_floats(d_, load, keys, run.count, packed.q, static_cast<int>(task_->queries), head_dim_, ahead_,
                   scores);
    });
    if (decoded || !is_fp8(run.k.format)) return;
    const float* row_scale = fp8_row_scales(tile.k, run);
    for (int64_t r = 0; r < task_->queries; ++r)
      restore_rows(work_->packed.restore[r], row_scale, run.count, scores + r * kScoreStride);
  }

  CodeWork code_work() { return {*task_, head_dim_, s_.codes, work_->coded, ahead_}; }

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
    const float* row_scale = fp8 ? fp8_row_scales(tile.v, run) : nullptr;
    const bool decoded = !is_float(run.v.format) || (fp8 && exceeds_weights(row_scale, run.count));
    const std::byte* const* rows =
        decoded ? decode(tile.v, run.v, run, room) : pad_rows(tile.v.row + run.first, run.count, room);
    float* p = s_.scores + run.first;
    with_load(d_, run.v.format, decoded, head_dim_, [&](auto load) KV_ATTR {
      using Load = decltype(load);
      for (int64_t r = 0; fp8 && !decoded && r < task_->queries; ++r)
        restore_rows(Load::kFactor, row_scale, run.count, p + r * kScoreStride);
      order_sums(Load::kVectors);
      add_floats(d_, load, rows, run.count, p, static_cast<int>(task_->queries), head_dim_, ahead_,
                 task_->sum);
    });
  }

  // Brings the task's sums into the order of a load of that many vectors.
  void order_sums(int vectors) {
    if (vectors == work_->sums_order) return;
    const int64_t n = task_->queries * head_dim_;
    if (work_->sums_order == 2) undeal<2>(d_, task_->sum, n);
    if (work_->sums_order == 4) undeal<4>(d_, task_->sum, n);
    if (vectors == 2) deal<2>(d_, task_->sum, n);
    if (vectors == 4) deal<4>(d_, task_->sum, n);
    work_->sums_order = vectors;
  }

  D d_;
  int head_dim_;
  Scratch& s_;
  Ahead ahead_;
  Round rounds_[2];
  Round *now_ = &rounds_[0], *next_ = &rounds_[1];

  // Where the next tile is: the tasks that belong together, how far each has been located, whose turn it is.
  std::span<const AttentionTask> tasks_;
  SpanCursor at_[kQueryBlock];
  size_t turn_ = 0;
  int64_t row_ = 0;

  // Whose tile is worked on.
  const AttentionTask* task_ = nullptr;
  TaskInWork* work_ = nullptr;
  TaskInWork in_work_[kQueryBlock];
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
