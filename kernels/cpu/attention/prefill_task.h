// The unit of work of whole and chunked prefill: a block of a step's tokens, for some of the query heads that
// share a kv head, over a range of logical rows. Private to kernels/.
//
// Nothing that one query computes depends on how a problem is cut into tasks: the cut is free to follow what
// keeps threads busy, and a prompt has the same bits whole, in chunks, and in pieces.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "kernels/attention.h"
#include "kernels/cpu/attention/attention_task.h"

namespace kv::cpu {

// A panel is this many consecutive tokens of one query head, side by side in vector lanes.
inline constexpr int kPanelTokens = 32;
inline constexpr int kMaxPanels = 8;  // panels in one task

// Rows of a tile's scores: blocks of keys may write past the last one.
inline constexpr int kPaddedTile = kTileRows + 8;

// Floats of one panel's softmax state: the maximum [kPanelTokens] of the scores in powers of two, the sum
// [kPanelTokens], and the un-normalised output [head_dim, kPanelTokens].
inline int64_t panel_state_floats(int head_dim) { return (2 + int64_t{head_dim}) * kPanelTokens; }

inline int64_t panels_of(int64_t tokens) { return (tokens + kPanelTokens - 1) / kPanelTokens; }

// How a problem is cut: blocks of `tokens` tokens times blocks of `heads` query heads.
struct PrefillCut {
  int64_t tokens = 0, token_blocks = 0;
  int heads = 0, head_blocks = 0;

  PrefillCut() = default;
  // `problems`: of the same step. Fewer of them are cut finer, so that there is work for all threads.
  PrefillCut(const HeadQueries& p, size_t problems);
  int64_t tasks() const { return token_blocks * head_blocks; }
};

struct PrefillTask {
  const HeadQueries* problem = nullptr;
  std::span<const Span> spans;          // hold the rows from row_begin on, at `start`
  SpanCursor start;                     // position of row_begin
  int64_t row_begin = 0, row_end = 0;   // logical rows; none beyond what the last token sees
  int64_t first_token = 0, tokens = 0;  // first_token is a multiple of kPanelTokens
  int first_head = 0, heads = 0;        // heads of the problem's group
  float* held = nullptr;                // [group, panels of n, panel_state_floats], or null: see below
  bool finish = false;                  // row_end is the last row: outputs are to be written

  int64_t panels() const { return panels_of(tokens) * heads; }
};

// A range of a problem's rows. All its rows at once need no memory between tasks; where they come in ranges,
// `held` keeps the panels' states from one to the next.
struct PrefillWork {
  const HeadQueries* problem;
  std::span<const Span> spans;
  SpanCursor start;
  int64_t row_begin, row_end;
  float* held;
  PrefillCut cut;
  int64_t tasks_before = 0;  // in the queue

  PrefillTask task(int64_t i) const;
};

// The tasks that threads claim: the longest problem first, and each from its last tokens, which see the most
// rows. They are computed as they are claimed: a list would grow with the prompt.
class PrefillQueue {
 public:
  // Sorts `works` and numbers their tasks.
  explicit PrefillQueue(std::span<PrefillWork> works);
  // False once all are taken.
  bool claim(PrefillTask& task);

 private:
  std::span<const PrefillWork> works_;
  int64_t tasks_ = 0;
  std::atomic<int64_t> claimed_ = 0;
};

// Floats of scratch that one thread needs.
int64_t prefill_scratch_floats(int head_dim);

// Takes tasks until there are none. scratch: 64-byte aligned.
void run_prefill_simd(PrefillQueue& queue, int head_dim, float* scratch);

}  // namespace kv::cpu
