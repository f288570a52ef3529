// Whole and chunked prefill as tiled attention (Dao et al. 2022, arXiv:2205.14135), compiled once for each
// instruction set and picked at run time.
//
// A task holds a few panels of queries, and takes a tile of kTileRows rows after another: its rows are found,
// and decoded to f32 where they are anything else, once for all panels. A panel and a tile fit the nearest
// cache, and the rows the next one.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/attention/prefill_task.h"
#include "kernels/cpu/attention/tile.h"
#include "kernels/cpu/targets.h"
#include "kernels/format/f32.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/prefill_simd.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/prefill-inl.h"
#include "kernels/cpu/attention/score_cap-inl.h"
#include "kernels/cpu/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

struct Panel {
  int64_t first_token;
  int tokens;
  float *queries, *state, *out;
  const float* sink_logit;  // or null
};

class PrefillRunner {
 public:
  PrefillRunner(int head_dim, float* scratch) : head_dim_(head_dim) {
    const auto take = [&](int64_t count) { return std::exchange(scratch, scratch + count); };
    queries_ = take(int64_t{kMaxPanels} * head_dim * kPanelTokens);
    states_ = take(kMaxPanels * panel_state_floats(head_dim));
    scores_ = take(kPaddedTile * kPanelTokens);
    rescale_ = take(kPanelTokens);
    decoded_[0] = take(int64_t{kTileRows} * head_dim);
    decoded_[1] = take(int64_t{kTileRows} * head_dim);
  }

  void run(const PrefillTask& task) {
    if (task.row_begin >= task.row_end) return;
    start(task);
    SpanCursor at = task.start;
    for (int64_t row = task.row_begin; row < task.row_end; row += kTileRows) {
      const int rows = static_cast<int>(std::min<int64_t>(kTileRows, task.row_end - row));
      locate_tile(task.spans, head_dim_, at, rows, tile_);
      read(tile_.k, 0, keys_);
      read(tile_.v, 1, values_);
      for (int i = 0; i < panels_; ++i) attend(panel_[i], task.problem->visible - row);
    }
    if (!task.finish) return;
    for (int i = 0; i < panels_; ++i) {
      const Panel& p = panel_[i];
      if (p.sink_logit) add_sink(*p.sink_logit * kLog2E, p.state, p.state + kPanelTokens);
      unpack_outputs(p.state + 2 * kPanelTokens, p.state + kPanelTokens, p.tokens, head_dim_, p.out);
    }
  }

 private:
  // The panels, head by head, with their queries packed.
  void start(const PrefillTask& task) {
    const HeadQueries& p = *task.problem;
    // Scores as powers of two: the softmax is the same, and its exponential has no argument to reduce.
    const float scale = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(head_dim_)));
    cap_ = p.score_cap * kLog2E;
    const int64_t state_floats = panel_state_floats(head_dim_);
    panels_ = 0;
    for (int head = task.first_head; head < task.first_head + task.heads; ++head) {
      for (int64_t t = task.first_token; t < task.first_token + task.tokens; t += kPanelTokens, ++panels_) {
        const int64_t query = head * p.n + t, last = task.first_token + task.tokens;
        Panel& panel = panel_[panels_];
        panel.first_token = t;
        panel.tokens = static_cast<int>(std::min<int64_t>(kPanelTokens, last - t));
        panel.queries = queries_ + int64_t{panels_} * head_dim_ * kPanelTokens;
        panel.state = task.held ? task.held + (head * panels_of(p.n) + t / kPanelTokens) * state_floats
                                : states_ + panels_ * state_floats;
        panel.out = p.out + query * head_dim_;
        panel.sink_logit = p.sink_logits ? p.sink_logits + head : nullptr;
        pack_queries(p.q + query * head_dim_, panel.tokens, head_dim_, scale, panel.queries);
        if (task.row_begin > 0) continue;
        std::fill_n(panel.state, kPanelTokens, -INFINITY);
        std::fill_n(panel.state + kPanelTokens, state_floats - kPanelTokens, 0.0f);
      }
    }
  }

  // Pointers to a side's rows in f32, with copies of the last one behind them.
  void read(const TileSide& side, int which, const float** rows) {
    for (int i = 0; i < tile_.runs; ++i) {
      const Run& run = tile_.run[i];
      const Encoding& encoding = which == 0 ? run.k : run.v;
      const float* decoded = decoded_[which] + run.first * head_dim_;
      const bool direct = encoding.format == F32Format::kFormat;
      if (!direct)
        decode_tile_rows(side, encoding, head_dim_, run.first, run.count,
                         decoded_[which] + run.first * head_dim_);
      for (int j = 0; j < run.count; ++j) {
        rows[run.first + j] =
            direct ? reinterpret_cast<const float*>(side.row[run.first + j]) : decoded + j * head_dim_;
      }
    }
    std::fill_n(rows + tile_.rows, kPaddedTile - kTileRows, rows[tile_.rows - 1]);
  }

  // One panel and the tile. Token 0 of the step sees the tile's rows up to `visible`.
  void attend(const Panel& panel, int64_t visible) {
    const int64_t common = visible + panel.first_token;
    const CausalMask mask{common, static_cast<int>(std::min<int64_t>(tile_.rows, common + panel.tokens - 1))};
    if (mask.rows <= 0) return;
    float *max = panel.state, *sum = max + kPanelTokens, *outputs = sum + kPanelTokens;
    score_panel(keys_, mask.rows, panel.queries, head_dim_, scores_);
    if (cap_ > 0) cap_scores(scores_, mask.rows * kPanelTokens, 1.0f, cap_);
    softmax_panel(mask, scores_, max, sum, rescale_);
    add_values_to_panel(values_, scores_, mask, rescale_, head_dim_, outputs);
  }

  static constexpr float kLog2E = 1.44269504f;

  int head_dim_;
  float cap_ = 0.0f;  // in powers of two, as scores are
  float *queries_, *states_, *scores_, *rescale_, *decoded_[2];
  Panel panel_[kMaxPanels];
  int panels_ = 0;
  Tile tile_;
  const float *keys_[kPaddedTile], *values_[kPaddedTile];
};

void run_prefill(PrefillQueue& queue, int head_dim, float* scratch) {
  PrefillRunner runner(head_dim, scratch);
  PrefillTask task;
  while (queue.claim(task)) runner.run(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#else
namespace kv::cpu::N_SCALAR {
void run_prefill(PrefillQueue&, int, float*) {}  // never picked
}  // namespace kv::cpu::N_SCALAR
#endif

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(run_prefill);

int64_t prefill_scratch_floats(int head_dim) {
  return kMaxPanels * (int64_t{head_dim} * kPanelTokens + panel_state_floats(head_dim)) +
         (kPaddedTile + 1) * kPanelTokens + 2 * int64_t{kTileRows} * head_dim;
}

void run_prefill_simd(PrefillQueue& queue, int head_dim, float* scratch) {
  HWY_DYNAMIC_DISPATCH(run_prefill)(queue, head_dim, scratch);
}

}  // namespace kv::cpu
#endif
