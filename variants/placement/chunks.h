// Lists of chunks of equal size that forks share: segmented never moves them, and tiered moves them from memory to memory.
//
// A fork shares even the last, partly filled chunk; whichever sequence writes to it next copies it first. The
// lists themselves are a pointer a chunk and are not counted.
#pragma once

#include <memory>
#include <vector>

#include "variants/placement/planes.h"

namespace kv {

class ChunksPlacement : public Placement, private BlockSharing {
 public:
  ChunksPlacement(const PlacementContext& context, int64_t chunk_rows,
                  AxisOrder order = AxisOrder::kHeadMajor)
      : context_(context), chunk_units_(chunk_rows / context.unit.rows), order_(order) {}
  ChunksPlacement(const ChunksPlacement&) = delete;
  ChunksPlacement& operator=(const ChunksPlacement&) = delete;

  void open(int sequence) override;
  void close(int sequence) override { lists_[sequence].clear(); }
  void fork(int from, int to, const std::vector<int64_t>& units) override;
  void reserve(int layer, std::span<const Growth> growths) override;
  void trim(int sequence, int layer, int64_t used, int64_t units) override;
  UnitAddress at(int sequence, int layer, int head, int64_t unit) override;
  int64_t run_units() const override { return chunk_units_; }
  void spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) override;
  int64_t moves(int, int) const override { return moves_; }
  BlockSharing* sharing() override { return this; }

  // Bytes of the chunks of one layer that hold `used` units.
  static int64_t bytes(const PlacementContext& context, int64_t chunk_rows, int64_t used);

 protected:
  struct Chunk {
    virtual ~Chunk() = default;
    Planes planes;
  };
  using ChunkList = std::vector<std::shared_ptr<Chunk>>;

  // A chunk without planes.
  virtual std::shared_ptr<Chunk> make_chunk() { return std::make_shared<Chunk>(); }
  // The chunk's planes; `index` of its list, for which `growth` asks.
  virtual void make_room(Chunk& chunk, int64_t /*index*/, const Growth& /*growth*/) {
    chunk.planes = make_planes(context_, Tier::kHot);
  }
  // The context is the placement's own, and outlives the planes.
  Planes make_planes(const PlacementContext& context, Tier tier) const {
    return Planes(context, chunk_units_, ByteKind::kPayload, ByteKind::kMetadata, order_, tier);
  }
  ChunkList& list(int sequence, int layer) { return lists_[sequence][layer]; }
  const ChunkList& list(int sequence, int layer) const { return lists_[sequence][layer]; }
  const PlacementContext& context() const { return context_; }
  int64_t chunk_units() const { return chunk_units_; }
  int64_t chunk_rows() const { return chunk_units_ * context_.unit.rows; }
  void note_move() { ++moves_; }

 private:
  int64_t block_units() const override { return chunk_units_; }
  SharedBlock hold(int sequence, int64_t block) override;
  void adopt(int sequence, std::span<const SharedBlock> blocks) override;

  const PlacementContext context_;
  const int64_t chunk_units_;
  const AxisOrder order_;
  std::vector<std::vector<ChunkList>> lists_;  // [sequence][layer]
  int64_t moves_ = 0;
};

}  // namespace kv
