// The tiles of a thread's tasks in the order in which they are worked on, and the prefetching of their rows. Private to
// kernels/cpu; compiled once a target.
#if defined(KV_TILE_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_TILE_STREAM_INL_H_
#undef KV_TILE_STREAM_INL_H_
#else
#define KV_TILE_STREAM_INL_H_
#endif

#include <algorithm>

#include <hwy/highway.h>

#include "kernels/cpu/attention/multiplied_codes.h"
#include "kernels/cpu/attention/tile-inl.h"
#include "kernels/cpu/attention/tile_batch.h"
#include "kernels/cpu/attributes-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

// Each batch of tiles is located before the previous one is worked on, so that its rows can be prefetched: the next tasks
// are claimed before these end.
class TileStream {
 public:
  TileStream(TaskQueue& queue, int head_dim) : queue_(queue), head_dim_(head_dim) {
    more_ = locate_batch();
    if (more_) prefetcher_.start(lines_out_of_order());
  }

  // The next batch, until the next call; null once all tasks' tiles have come.
  const TileBatch* next() {
    if (!more_) return nullptr;
    std::swap(now_, next_);
    more_ = locate_batch();
    return now_;
  }
  Prefetcher& prefetcher() { return prefetcher_; }

 private:
  // The largest number of lines by which work runs behind the order of prefetches. Tiles of a batch are
  // prefetched together. Values of codes are processed in strips of 64 bytes over all rows of a tile; only
  // with_wide() takes whole rows.
  int64_t lines_out_of_order() const {
    const int64_t others = (next_->k_lines + next_->v_lines) * (next_->tiles - 1) / next_->tiles;
    const LocatedTile& tile = next_->tile[0];
    const Encoding& v = tile.run[0].v;
    const bool whole_rows = descriptor_of(v.format).scaling == Scaling::kRow && tile.task->queries == 1;
    if (!multiplies_v_codes(v, head_dim_) || whole_rows) return others;
    return others + std::max<int64_t>(0, next_->v_lines / next_->tiles - tile.rows);
  }

  // Returns false, and locates nothing, once all tasks' tiles have been located.
  bool locate_batch() {
    if (in_batch_ == tasks_.size()) {
      in_batch_ = 0;
      row_ += kTileRows;
    }
    while (tasks_.empty() || row_ >= tasks_[0].row_end) {
      if (!claim_tasks()) return false;
    }
    next_->tiles = 0;
    do locate(next_->tile[next_->tiles++]);
    while (++in_batch_ < tasks_.size() && next_->tiles < TileBatch::kTiles);
    const Run& run = next_->tile[0].run[0];  // a tile of one run is the rule; prefetching needs no more
    next_->list_ranges(row_bytes(run.k), row_bytes(run.v));
    prefetcher_.enqueue({next_->range, next_->ranges});
    return true;
  }

  // The next tile of the task that is next in the batch.
  void locate(LocatedTile& tile) {
    const AttentionTask& task = tasks_[in_batch_];
    tile.task = &task;
    tile.in_batch = in_batch_;
    tile.row = row_;
    const int rows = static_cast<int>(std::min<int64_t>(task.row_end - row_, kTileRows));
    SpanCursor& at = at_[in_batch_];
    locate_tile(task.spans, head_dim_, at, rows, tile);
    // With short spans the list of spans itself is long: its next entries are prefetched too.
    const auto* following = reinterpret_cast<const std::byte*>(task.spans.data() + at.span);
    prefetch(following, tile.pieces * static_cast<int64_t>(sizeof(Span)));
  }

  bool claim_tasks() {
    tasks_ = queue_.claim();
    if (tasks_.empty()) return false;
    in_batch_ = 0;
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

  TaskQueue& queue_;
  int head_dim_;
  Prefetcher prefetcher_;
  TileBatch batches_[2];
  TileBatch *now_ = &batches_[0], *next_ = &batches_[1];
  bool more_;

  // The position of the next tile: the batched tasks, how far each has been located, and whose turn it is.
  std::span<const AttentionTask> tasks_;
  SpanCursor at_[kQueryBlock];
  size_t in_batch_ = 0;
  int64_t row_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
