// Head-major planes: the storage that contiguous, concat and doubling share. One allocation a plane, [heads,
// capacity] units (or [capacity, heads], where the layout asks for it).
#pragma once

#include <vector>

#include "variants/core/placement.h"

namespace kv {

enum class AxisOrder { kHeadMajor, kRowMajor };  // [B,H,S,D] or [B,S,H,D]

// K and V of one (sequence, layer).
class Planes {
 public:
  Planes() = default;
  Planes(const PlacementContext& context, int64_t capacity_units, ByteKind data_kind, ByteKind meta_kind,
         AxisOrder order = AxisOrder::kHeadMajor, Tier tier = Tier::kHot);

  int64_t capacity() const { return capacity_; }
  UnitAddress at(int head, int64_t unit) const;
  void spans(int head, int64_t from, int64_t rows, SpanList& out) const;
  // Copies the first `units` units of every head from `other`, of the same context and order.
  void copy_from(const Planes& other, int64_t units);

 private:
  int64_t unit_stride(int plane) const;
  int64_t head_stride(int plane) const;

  const PlacementContext* context_ = nullptr;
  int64_t capacity_ = 0;
  AxisOrder order_ = AxisOrder::kHeadMajor;
  std::array<Block, kPlanes> plane_;
};

// The bytes of one layer's planes of `units`, all heads.
int64_t planes_bytes(const PlacementContext& context, int64_t units);

// One Planes for every (sequence, layer), and what its users do alike; they differ in when they grow.
class PlanesPlacement : public Placement {
 public:
  explicit PlanesPlacement(const PlacementContext& context) : context_(context) {}
  PlanesPlacement(const PlanesPlacement&) = delete;
  PlanesPlacement& operator=(const PlanesPlacement&) = delete;

  void open(int sequence) override;
  void close(int sequence) override;
  void fork(int from, int to, const std::vector<int64_t>& units) override;
  void reserve(int layer, std::span<const Growth> growths) override;
  UnitAddress at(int sequence, int layer, int head, int64_t unit) override;
  void spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) override;
  int64_t moves(int, int) const override { return moves_; }

 protected:
  // Makes units [0, units) of the planes writable, of which `used` hold data.
  virtual void grow(int sequence, int layer, int64_t used, int64_t units) = 0;
  const PlacementContext& context() const { return context_; }
  Planes& planes(int sequence, int layer);
  // Replaces the planes by ones of another capacity and copies the first `used` units over.
  void regrow(int sequence, int layer, int64_t used, int64_t capacity);
  void note_move() { ++moves_; }

 private:
  const PlacementContext context_;
  std::vector<std::vector<Planes>> planes_;  // [sequence][layer]
  int64_t moves_ = 0;
};

}  // namespace kv
