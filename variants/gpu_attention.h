// Attention over rows where they lie: in a GPU's memory, or outside it, from where they pass through it piece
// by piece, the next ones on their way while kernels read others.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/gpu.h"
#include "variants/codec/codec.h"
#include "variants/gpu_batch.h"
#include "variants/placement/placement.h"

namespace kv {

// Rows that lie outside the GPU's memory: pieces of kSplitRows rows, of all heads of an input, before the
// rows of the problems' spans.
struct FarRows {
  const UnitLayout& unit;
  std::vector<int64_t> rows;                       // [inputs]
  std::function<void(const PieceVisitor&)> visit;  // as Placement::stream() does it
};

// Keys that are to be turned before attention reads them, in a copy (positions=cache). None of them is far.
struct TurnedKeys {
  std::span<const float> angles;  // [places, 2, head_dim / 2] of the host: more with time, else the same
  bool halves;                    // which channels are pairs, as in variants/rope.h
  std::vector<std::vector<int32_t>> places;  // [problems] of each row
};

class GpuAttention {
 public:
  // The memory has a GPU. It holds what this needs while it works, as workspace.
  GpuAttention(Memory& memory, const Codec& codec, int head_dim);

  // As kv::attend, for spans and mass of the GPU's memory; q and out are the host's. All problems have one
  // group. Those of an input, one a kv head, lie one behind the other.
  void attend(std::span<const HeadQueries> problems, const FarRows* far, const TurnedKeys* turned);
  // Whether the last of them took the fast kernel.
  bool fast() const { return fast_; }

 private:
  struct Slots;
  struct Placed;
  struct Offsets;

  GpuBatch pack(std::span<const HeadQueries> problems, const FarRows* far, bool copies) const;
  Slots make_slots(const GpuBatch& batch, const FarRows* far);
  std::vector<cuda::Page> pages_of(const GpuBatch& batch, const Slots& slots, int problem) const;
  void place_copies(GpuBatch& batch, Slots& slots);
  Offsets upload_lists(GpuBatch& batch, const Slots& slots, const TurnedKeys* turned) const;
  Placed place(GpuBatch& batch, Slots& slots, const TurnedKeys* turned);
  const float* angles_on_gpu(const TurnedKeys& turned);
  cuda::CopyParams copying(const GpuBatch& batch, const Placed& at, const cuda::CopyJob* jobs) const;

  cuda::MergeParams merging(const GpuBatch& batch, const Placed& at) const;
  void decode(const GpuBatch& batch, const Placed& at, bool tail, const ItemRange& items);
  void attend_simple(const GpuBatch& batch, const Placed& at, const ItemRange& problems,
                     const ItemRange& splits);
  void run_near(const GpuBatch& batch, const Placed& at);
  void run_pieces(const GpuBatch& batch, const Placed& at, const Slots& slots, const FarRows& far);
  void run_piece(const GpuBatch& batch, const Placed& at, size_t input, size_t piece);
  void collect(std::span<const HeadQueries> problems, const float* from, int64_t numbers);
  std::byte* fit(Block& block, size_t bytes);

  Memory& memory_;
  cuda::Gpu& gpu_;
  const Codec codec_;
  const int head_dim_;
  bool fast_ = true;
  Block input_, output_, slots_, copy_, angles_;
  size_t angles_there_ = 0;
  std::vector<float> collected_;  // the host's
};

}  // namespace kv
