// A step's attention problems on their way to a GPU: which pages their rows are, how the work is cut, and
// where in two blocks of memory all of it will lie. Addresses come last, in GpuAttention::place.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/attention/params.h"
#include "variants/core/codec.h"
#include "variants/core/memory.h"

namespace kv {

// Arrays begin at multiples of this, in the GPU's memory.
inline size_t aligned_for_gpu(size_t bytes) { return (bytes + 255) / 256 * 256; }

// As fit() of scratch.h, in the GPU's memory.
inline std::byte* fit_on_gpu(Memory& memory, Block& block, size_t bytes) {
  if (block.size() < bytes) {
    block = Block();
    block = Block::of_rows(memory, aligned_for_gpu(bytes + bytes / 8), ByteKind::kWorkspace);
  }
  return block.data();
}

// What goes to the GPU in one copy. Places are known before the address is.
class Upload {
 public:
  template <class T>
  size_t add(std::span<const T> values) {
    const size_t at = reserve<T>(values.size());
    set(at, values);
    return at;
  }
  template <class T>
  size_t add(const std::vector<T>& values) {
    return add(std::span<const T>(values));
  }
  // As add(), for values that will be given by set().
  template <class T>
  size_t reserve(size_t count) {
    const size_t at = bytes_.size();
    bytes_.resize(at + aligned_for_gpu(count * sizeof(T)));
    return at;
  }
  template <class T>
  void set(size_t at, std::span<const T> values) {
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size_bytes());
  }
  size_t size() const { return bytes_.size(); }
  const std::byte* data() const { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

// Rows of a piece that passes through the GPU's memory, of the plain kernel's splits, and of a page of f32
// copies.
inline constexpr int32_t kPieceRows = kSplitRows;
// Pieces that are on their way while others are read.
inline constexpr int kPrefetchedPieces = 2;

struct F32Rows {
  float *k = nullptr, *v = nullptr;  // [rows, head_dim]
};

// A problem's rows that are in memory to stay.
struct ResidentRows {
  std::vector<cuda::Page> pages, residual;
  int32_t rows = 0, residual_rows = 0;
  F32Rows copy{};  // of all of them, where attention reads one
  int32_t all() const { return rows + residual_rows; }
};

struct ItemRange {
  size_t first = 0, count = 0;
};

struct GpuBatch {
  // streamed_rows[i] of input i's problems, `heads` one after the other, come in pieces, before their spans;
  // whole pieces. `through_copies`: attention reads an f32 copy of all rows.
  GpuBatch(std::span<const HeadQueries> from, const Codec& codec, int head_dim,
           std::vector<int64_t> streamed_rows, int heads, bool through_copies);

  // Of the encoded rows and of the raw ones; and, where attention reads them as f32, of that.
  cuda::Layout encoded{}, raw{}, copied{};
  bool copies = false;
  int heads = 1;                       // kv heads of an input
  std::vector<int64_t> streamed_rows;  // [inputs]
  std::vector<ResidentRows> resident;  // [problems]
  std::vector<cuda::Problem> problems;
  // [problems] where attention weights are added to; null where they are not wanted.
  std::vector<float*> weights;
  Upload upload;
  std::vector<size_t> q_at;  // [problems]
  int32_t group = 1, most_queries = 0, most_rows = 0;
  int64_t outputs = 0, logits = 0;  // of all problems together

  // Cuts the problems for blocks of so many queries of the fast kernel, or, if 0, for the plain one.
  void cut(int queries_of_block, int multiprocessors);
  std::vector<cuda::WorkItem> items[2];  // of the pages and of the residual rows, where the fast kernel runs
  int32_t block_queries = 0, most_splits = 0;
  int64_t partials = 0;

  // The items that need no piece, and those that can run once piece i of all has come; cut() has put them in
  // that order.
  ItemRange resident_items;
  std::vector<ItemRange> piece_items;
  std::vector<size_t> first_piece;  // [inputs + 1] of all pieces
  // Pieces that lie in the GPU's memory at a time: those that one item may need, and those on their way.
  size_t slots = 0;

  int count() const { return static_cast<int>(problems.size()); }
  int32_t blocks(int32_t queries) const { return (queries + block_queries - 1) / block_queries; }
  const cuda::Layout& layout() const { return copies ? copied : encoded; }
  int64_t streamed_of(int problem) const { return streamed_rows[static_cast<size_t>(problem / heads)]; }

 private:
  void find_layouts(std::span<const HeadQueries> from, const Codec& codec, int head_dim);
  void add(const HeadQueries& p, int64_t streamed, const Codec& codec);
  void group_items();
};

// A span's rows as the kernels see them: units of `unit_rows` rows.
cuda::Layout layout_of(const Span& span, int head_dim);

}  // namespace kv
