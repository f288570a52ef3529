// Rows that lie outside the GPU's memory pass through it in pieces: the next ones are on their way while kernels read others,
// and the next layer's first ones while they read a layer's last.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "variants/core/placement.h"
#include "variants/storage/gpu_batch.h"

namespace kv {

// Pieces of layers that are equal in all of this have the same bytes.
struct LayerKey {
  int layer = -1;
  std::vector<int> sequences;
  std::vector<int64_t> moves;  // [sequences] as Placement::moves() has them
  bool operator==(const LayerKey&) const = default;
};

struct LayerPieces {
  LayerKey key;
  std::function<void(const PieceRange&, const PieceVisitor&)> visit;  // see Placement::stream()
};

// Pieces of kPieceRows rows, of all heads of an input, before the rows of the problems' spans.
struct PieceSource {
  const UnitLayout& unit;
  std::vector<int64_t> rows;  // [inputs]
  LayerPieces layer, next;    // `next`: the one that attends after this one
};

// The slots through which pieces pass, [slots][plane][head][unit], planes in kPieceOrder; and, where attention reads a
// copy, the f32 rows of each, [slots][head][K and V][row].
struct PieceSlots {
  int heads = 1, head_dim = 0;
  size_t count = 0, first = 0;  // `first`: the slot of a layer's first piece
  std::array<int64_t, kPlanes> plane_bytes{};
  std::byte* room = nullptr;
  float* copies = nullptr;

  size_t of(size_t piece) const { return (first + piece) % count; }
  int64_t bytes() const;
  int64_t copied_numbers() const { return int64_t{2} * kPieceRows * head_dim * heads; }
  std::byte* plane(size_t slot, int plane) const;
  cuda::Page encoded(size_t slot, int head) const;
  F32Rows copied(size_t slot, int head) const;
};

class GpuPieces {
 public:
  // The memory has a GPU. It holds the slots, as workspace.
  explicit GpuPieces(Memory& memory) : memory_(memory), gpu_(*memory.gpu()) {}

  // For a batch. Pieces that fetch_next() brought for it are in theirs.
  PieceSlots make_slots(const GpuBatch& batch, const PieceSource& source, int head_dim);
  // Calls `read`, which launches what reads a piece, once for each in order, behind the copy that brings it. A slot is
  // overwritten when all that read the piece before it is done. Throws std::runtime_error where reading a file fails.
  using Read = std::function<void(size_t input, size_t piece)>;
  void run(const PieceSource& source, const PieceSlots& slots, const Read& read);
  // After run(): copies the first pieces of the layer that comes next, while the GPU does what it was given.
  void fetch_next(const LayerPieces& next, const PieceSlots& slots);
  // After a step that failed: fetch_next() brought nothing.
  void forget() { ahead_inputs_.clear(); }

 private:
  void overwrite(const PieceSlots& slots, size_t piece);
  void fetch(const PieceSlots& slots, size_t piece, const Piece& from);

  Memory& memory_;
  cuda::Gpu& gpu_;
  Block room_;
  std::array<cuda::Gpu::Mark, kPrefetchedPieces + 1> done_{};  // launches that read the newest pieces
  cuda::Gpu::Mark copied_ = 0;                                 // the newest piece
  size_t run_ = 0;                                             // pieces of the layer that ran last
  // Pieces that fetch_next() brought: their layer, slots and inputs.
  LayerKey ahead_;
  PieceSlots ahead_slots_;
  std::vector<size_t> ahead_inputs_;
};

}  // namespace kv
