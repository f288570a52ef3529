// A step's attention problems on their way to a GPU: the pages of their rows and the cut of the work. Queries, outputs and
// lists get their addresses in GpuAttention::place.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/rows/params.h"
#include "variants/core/codec.h"
#include "variants/core/memory.h"
#include "variants/storage/attention_plan.h"

namespace kv {

// Arrays begin at multiples of this, in the GPU's memory.
inline size_t aligned_for_gpu(size_t bytes) { return (bytes + 255) / 256 * 256; }

// fit() of scratch.h, in the GPU's memory.
inline std::byte* fit_on_gpu(Memory& memory, Block& block, size_t bytes) {
  if (block.size() < bytes) {
    block = Block();
    block = Block::of_rows(memory, aligned_for_gpu(bytes + bytes / 8), ByteKind::kWorkspace);
  }
  return block.data();
}

// The parts of a block of the GPU's memory, one behind the other.
class Room {
 public:
  explicit Room(const Block& block) : base_(reinterpret_cast<uintptr_t>(block.data())) {}
  template <class T>
  T* take(size_t count) {
    T* const at = reinterpret_cast<T*>(base_ + size_);
    size_ += aligned_for_gpu(count * sizeof(T));
    return at;
  }
  float* floats(int64_t count) { return take<float>(static_cast<size_t>(count)); }
  size_t size() const { return size_; }

 private:
  uintptr_t base_;
  size_t size_ = 0;
};

// Data that go to such a block in one copy, with the addresses that they will have there.
class Upload : public Room {
 public:
  using Room::Room;
  template <class T>
  T* add(std::span<const T> values, size_t room = 0) {
    const size_t before = size();
    T* const at = take<T>(std::max(values.size(), room));
    bytes_.resize(size());
    if (!values.empty()) std::memcpy(bytes_.data() + before, values.data(), values.size_bytes());
    return at;
  }
  template <class T>
  T* add(const std::vector<T>& values) {
    return add(std::span<const T>(values));
  }
  // The same with room, so that a list that grows a little moves none behind it.
  template <class T>
  T* add_growing(const std::vector<T>& values) {
    return add(std::span<const T>(values), std::bit_ceil(values.size()));
  }
  template <class T>
  T* add_zeros(size_t count) {
    return add(std::span<const T>(), count);
  }
  const std::byte* data() const { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

// The parts of `block` as fill(parts) takes them. A block that is too small is replaced, and filled again.
template <class Parts, class Fill>
Parts parts_of(Memory& memory, Block& block, const Fill& fill) {
  for (;;) {
    Parts parts(block);
    fill(parts);
    if (parts.size() <= block.size()) return parts;
    fit_on_gpu(memory, block, parts.size());
  }
}

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
  F32Rows copy{};  // one copy of all rows, if attention reads one
  int32_t all() const { return rows + residual_rows; }
};

struct GpuBatch {
  // streamed_rows[i] of input i's problems, `heads` one after the other, come in pieces, before their spans;
  // whole pieces. `through_copies`: attention reads an f32 copy of all rows.
  GpuBatch(std::span<const HeadQueries> from, const Codec& codec, int head_dim,
           std::vector<int64_t> streamed_rows, int heads, bool through_copies);

  // The plan for the rows that attention reads: encoded rows or, if it reads f32, their copies.
  AttentionPlan plan;
  cuda::Layout encoded{}, raw{};  // stored layouts
  bool copies = false;
  int heads = 1;                       // kv heads of an input
  std::vector<int64_t> streamed_rows;  // [inputs]
  std::vector<ResidentRows> resident;  // [problems]
  // [problems] where attention weights are added to; null where they are not wanted.
  std::vector<float*> weights;
  int32_t most_rows = 0;
  int64_t outputs = 0, logits = 0;  // all problems together

  // Cuts the plan.
  void cut(const cuda::Gpu& gpu);
  // The items that need no piece, and those that can run once piece i of all has come; cut() has put them in
  // that order.
  ItemRange resident_items;
  std::vector<ItemRange> piece_items;
  std::vector<size_t> first_piece;  // [inputs + 1] of all pieces
  // Pieces that lie in the GPU's memory at a time: those that one item may need, and those on their way.
  size_t slots = 0;

  int count() const { return plan.count(); }
  int64_t streamed_of(int problem) const { return streamed_rows[static_cast<size_t>(problem / heads)]; }

 private:
  void find_layouts(std::span<const HeadQueries> from, const Codec& codec, int head_dim);
  void add(const HeadQueries& p, int64_t streamed, const Codec& codec);
  void group_items();
};

// A span's rows as the kernels see them: units of `unit_rows` rows.
cuda::Layout layout_of(const Span& span, int head_dim);

}  // namespace kv
