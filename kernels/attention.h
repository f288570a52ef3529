// Attention over spans on the CPU: softmax(q k^T / sqrt(head_dim)) v with the running maximum subtracted, in
// f32.
//
// The reduction follows logical rows in fixed tiles (kTileRows) and fixed splits (kSplitRows), never span
// borders and never the number of threads. So the output's bits depend on the queries and the stored rows
// alone: every placement, any thread count and any run agree.
//
// Steps of kPrefillTokens tokens and more (cpu/attention/prefill_simd.cc) are worked on differently from those of a few
// (cpu/attention/attention_simd.cc): in the former arithmetic is the limit, in the latter the reading of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/span.h"

namespace kv {

inline constexpr int kTileRows = 64;      // rows whose scores are held at once
inline constexpr int kSplitRows = 512;    // rows of one partial result (split-KV)
inline constexpr int kQueryBlock = 32;    // query rows that share one pass over the keys
inline constexpr int kHeldQueries = 512;  // query rows of a problem that attend() works on at once

// Steps of this many tokens or more take the prefill path, whose vector lanes hold 32 tokens at a time. With
// fewer tokens lanes would be idle, and the other path is faster.
inline constexpr int kPrefillTokens = 32;

// The type that queries and softmax weights are converted to for products with integer codes.
enum class Arithmetic : uint8_t {
  kExact,  // 16 bits: the error is far below that of the codes themselves
  // 8 bits, in steps of up to kPrefillTokens - 1 tokens, for the formats that int8_reason() allows: products
  // of blocks as ggml has them, with a scale a block of a query and of a tile's weights.
  kInt8,
};

// The queries that read one (sequence, layer, kv head): `group` query heads, n tokens each.
struct HeadQueries {
  const float* q = nullptr;     // [group, n, head_dim]
  float* out = nullptr;         // [group, n, head_dim]
  std::span<const Span> spans;  // logical rows, in order
  int group = 1;                // query heads that share this kv head
  int64_t n = 1;                // tokens of the step
  int64_t visible = 0;          // rows that token 0 sees (>= 1); token i sees `visible + i`. At most all rows
  // Extra terms of some models' softmax (gpt-oss, Gemma 2):
  const float* sink_logits =
      nullptr;  // [group] or null: a score that takes part in each query's softmax, without a value
  float score_cap = 0.0f;  // a score s becomes cap * tanh(s / cap); 0: it stays
  Arithmetic arithmetic = Arithmetic::kExact;
  float* attention_weights = nullptr;  // [rows] or null: += the weight each row got, summed over the queries
};

// True if a problem takes the prefill path. False if its attention weights are asked for, which prefill does
// not keep, and on the scalar path, which has one loop for all steps.
bool is_prefill(const HeadQueries& p);

// Bytes of scratch that attend() needs for these problems, with as many threads as OpenMP would give it now.
// Depends only on shapes; and since no more than kHeldQueries of a problem, or a few panels a thread, are in
// work at once, the prompt's length does not matter.
size_t attention_workspace_bytes(std::span<const HeadQueries> problems, int head_dim);

// head_dim: a multiple of 8, at most kMaxHeadDim. workspace: 64-byte aligned, of at least the bytes above.
void attend(std::span<const HeadQueries> problems, int head_dim, std::byte* workspace);

namespace cpu {
struct AttentionTask;
struct TaskQueue;
struct PrefillWork;
class PrefillQueue;
}  // namespace cpu
struct AttentionPartials;

// attend() for rows that are not all in memory at once: it gets them a piece at a time, and returns the same
// bits.
class PiecewiseAttention {
 public:
  // Rows [begin, end) of a problem.
  struct Piece {
    size_t problem;
    std::span<const Span> spans;
    int64_t begin, end;
  };

  // Grows with the number of queries: all are in work until the last piece has come.
  static size_t workspace_bytes(std::span<const HeadQueries> problems, int head_dim);
  // Like attend(), but ignores the problems' own spans.
  PiecewiseAttention(std::span<const HeadQueries> problems, int head_dim, std::byte* workspace);
  // Every problem must get each row once, in pieces that end at multiples of kSplitRows or with the last row,
  // and in order unless pieces_take_any_order() (piece_order.h). The pieces of one call, at most one a
  // problem, run in parallel.
  void run(std::span<const Piece> pieces);
  // Writes the remaining outputs. Called once, after all rows.
  void finish();

 private:
  friend void attend(std::span<const HeadQueries>, int, std::byte*);
  // Holds up to `most_held` queries of each problem; those from `first` on are in work.
  PiecewiseAttention(std::span<const HeadQueries> problems, int head_dim, int64_t most_held,
                     std::byte* workspace);
  void work_on_queries_from(int64_t first);
  void plan(const Piece& piece);
  void plan_prefill(const Piece& piece);
  // Sorted by address, so that neighbouring rows are read at nearly the same time: heads whose rows
  // alternate, as in a paged pool, then share what the hardware prefetches.
  void sort_tasks();
  // Interleaves the tiles of heads whose rows lie in short neighbouring spans, as in a paged pool. The
  // hardware prefetches along about eight streams of reads, but not from span to span. Head after head, it
  // would have to detect each span again, and prefetches past a span's end would be wasted.
  void batch_tasks();
  // Both share their work among the threads of the surrounding parallel region.
  void run_tasks(cpu::TaskQueue& queue) const;
  void merge_splits() const;
  void run_prefill(cpu::PrefillQueue& queue) const;
  void run_planned(bool threads, bool merge);

  std::span<const HeadQueries> problems_;
  int head_dim_;
  int64_t most_held_, first_query_ = 0;
  cpu::AttentionTask* tasks_;
  AttentionPartials* partials_;
  cpu::PrefillWork* prefill_works_;
  float* prefill_scratch_;  // [threads]
  int64_t planned_ = 0, planned_prefill_ = 0;
};

// The bound on an output's relative L2 distance from FP64 on the same stored rows: the larger of the two
// formats' bounds (kernels/format/descriptor.h), and with kInt8 also that of its 8 bits.
double attention_error_bound(const Encoding& k, const Encoding& v,
                             Arithmetic arithmetic = Arithmetic::kExact);

// Empty, or the reason why kInt8 cannot read such rows.
std::string int8_reason(const Encoding& e);

// True if decode steps on the vector path multiply one side's rows as 16-bit integer codes (scores with K,
// weights with V); otherwise rows are decoded to f32.
bool scores_codes(const Encoding& k, int head_dim);
bool weighs_codes(const Encoding& v, int head_dim);

// The name of the kernel for rows of these encodings in steps of `tokens` tokens: the instruction set, the
// path unless it is that of decode steps, and the formats, as in "avx3/k:q8_0,v:q4_0", "avx3/int8/q8_0" or
// "avx3/prefill/f16".
std::string attention_kernel_name(const Encoding& k, const Encoding& v, int64_t tokens = 1,
                                  Arithmetic arithmetic = Arithmetic::kExact);

}  // namespace kv
