// Attention over rows in a GPU's memory, or outside it: those pass through it piece by piece (gpu_pieces.h).
#pragma once

#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/gpu.h"
#include "variants/core/codec.h"
#include "variants/core/placement.h"
#include "variants/storage/gpu_pieces.h"
#include "variants/storage/resident_lists.h"

namespace kv {

// Keys that are rotated before attention reads them, in a copy (positions=cache). None of them is streamed.
struct RotatedKeys {
  std::span<const float> angles;  // [positions, 2, head_dim / 2] of the host: more with time, else the same
  bool half_split = false;        // the pairs of channels, see variants/core/rope.h
  std::vector<std::vector<int32_t>> positions;  // [problems] of each row, in the cache
};

class GpuAttention {
 public:
  // The memory has a GPU. It holds what this needs while it works, as workspace.
  GpuAttention(Memory& memory, const Codec& codec, int head_dim);

  // kv::attend() for spans and attention weights in the GPU's memory; q and out are the host's. All problems have one
  // group. The problems of an input, one a kv head, lie one behind the other.
  void attend(std::span<const HeadQueries> problems, const PieceSource* source, const RotatedKeys* rotated);
  // True if the last call took the fast kernel.
  bool fast() const { return fast_; }

 private:
  struct Placed;

  void run(std::span<const HeadQueries> problems, const PieceSource* source, const RotatedKeys* rotated);
  GpuBatch pack(std::span<const HeadQueries> problems, const PieceSource* source, bool copies) const;
  std::vector<cuda::Page> pages_of(const GpuBatch& batch, const PieceSlots& slots, int problem) const;
  void place_copies(GpuBatch& batch, PieceSlots& slots);
  Placed place(std::span<const HeadQueries> problems, GpuBatch& batch, PieceSlots& slots,
               const RotatedKeys* rotated);
  void place_outputs(const GpuBatch& batch, Placed& placed);
  void point_problems(std::span<const HeadQueries> problems, GpuBatch& batch, const Placed& placed,
                      Upload& to) const;
  const cuda::CopyJob* add_lists(GpuBatch& batch, const PieceSlots& slots, const RotatedKeys* rotated,
                                 Upload& to) const;
  const cuda::CopyJob* add_slot_copies(const GpuBatch& batch, const PieceSlots& slots, Upload& to) const;
  const float* angles_on_gpu(const RotatedKeys& rotated);
  cuda::CopyParams copying(const GpuBatch& batch, const Placed& at, const cuda::CopyJob* jobs) const;

  void launch(const GpuBatch& batch, const Placed& at, const PieceSlots& slots, const PieceSource* source);
  void run_resident(const GpuBatch& batch, const Placed& at);
  void run_piece(const GpuBatch& batch, const Placed& at, const PieceSlots& slots, size_t input,
                 size_t piece);
  void collect(std::span<const HeadQueries> problems, const float* from, int64_t numbers);
  std::byte* fit(Block& block, size_t bytes);

  Memory& memory_;
  cuda::Gpu& gpu_;
  const Codec codec_;
  const int head_dim_;
  bool fast_ = true;
  GpuPieces pieces_;
  ResidentLists lists_;
  Block output_, copy_, angles_;
  size_t angles_there_ = 0;
  std::vector<float> collected_;  // the host's
};

}  // namespace kv
