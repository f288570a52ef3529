// Planes: the storage that contiguous, concat and doubling share. One allocation a plane, [heads, capacity] units, or
// [capacity, heads] if the layout keeps the rows of a token side by side.
#pragma once

#include <string>
#include <vector>

#include "variants/core/entry.h"
#include "variants/core/placement.h"

namespace kv {

enum class AxisOrder { kHeadMajor, kRowMajor };  // [B,H,S,D] or [B,S,H,D]

// The parameter `layout` that placements share, and a stage's value of it.
Parameter layout_parameter();
AxisOrder axis_order(const Stage& stage);

// Appends the spans over `rows` rows of one head, whose unit u lies at base + u * stride of each plane.
void add_spans(const UnitLayout& unit, const std::array<const std::byte*, kPlanes>& base,
               const std::array<int64_t, kPlanes>& stride, int64_t rows, SpanList& out);

// K and V of one (sequence, layer).
class Planes {
 public:
  Planes() = default;
  Planes(const PlacementContext& context, int64_t capacity_units, ByteKind data_kind, ByteKind meta_kind,
         AxisOrder order = AxisOrder::kHeadMajor, Tier tier = Tier::kHot);

  int64_t capacity() const { return capacity_; }
  UnitAddress at(int head, int64_t unit) const;
  void spans(int head, int64_t from, int64_t rows, SpanList& out) const;
  // Copies the first `units` units of every head from `other`, of the same order, to units [at, at + units). If these
  // planes have r times as many heads, each r consecutive heads are copies of one.
  void copy_from(const Planes& other, int64_t units, int64_t at = 0);

 private:
  int64_t unit_stride(int plane) const;
  int64_t head_stride(int plane) const;

  const PlacementContext* context_ = nullptr;
  int64_t capacity_ = 0;
  AxisOrder order_ = AxisOrder::kHeadMajor;
  // In the second pool V's planes lie behind K's, in K's blocks.
  std::array<Block, kPlanes> block_;
  std::array<std::byte*, kPlanes> plane_{};
};

// The bytes of one layer's planes of `units`, all heads.
int64_t planes_bytes(const PlacementContext& context, int64_t units);

// Copies that attention reads in place of the stored rows. `read=copy` gathers rows into fresh planes of the workspace at
// every view, like a tensor library whose slices own their memory. `read=repeat` copies K and V of a head for each of its
// query heads, like code without grouped reads (`repeat_kv`); it copies nothing if every query head has its own K and V.
class ReadCopies {
 public:
  ReadCopies(const Stage& stage, const PlacementContext& context);
  ReadCopies(const ReadCopies&) = delete;
  ReadCopies& operator=(const ReadCopies&) = delete;

  // The parameter `read`, with those of view, copy and repeat that a placement has.
  static Parameter parameter(std::vector<std::string_view> choices);
  static ReadMode mode(const Stage& stage);
  // The bytes of a copy of one layer's `units`, all heads; 0 where rows are read in place.
  static int64_t bytes(ReadMode mode, const PlacementContext& context, int64_t units);

  bool on() const { return on_; }
  int repeats() const { return repeats_; }
  // Planes for `units` units, to be filled. The last ones are gone before, as when a tensor is dropped.
  Planes& renew(int sequence, int layer, int64_t units);
  const Planes& of(int sequence, int layer) const { return copies_[sequence][layer]; }
  void close(int sequence);

 private:
  const int repeats_;
  const bool on_;
  const AxisOrder order_;
  const PlacementContext context_;           // with the repeated heads
  std::vector<std::vector<Planes>> copies_;  // [sequence][layer]
};

// One Planes for every (sequence, layer). Its subclasses differ in when the planes grow.
class PlanesPlacement : public Placement {
 public:
  // With the stage's `layout` and `read`.
  PlanesPlacement(const Stage& stage, const PlacementContext& context)
      : context_(context), order_(axis_order(stage)), copies_(stage, context) {}
  PlanesPlacement(const PlanesPlacement&) = delete;
  PlanesPlacement& operator=(const PlanesPlacement&) = delete;

  void open(int sequence) override;
  void close(int sequence) override;
  void fork(int from, int to, const std::vector<int64_t>& units) override;
  void reserve(int layer, std::span<const Growth> growths) override;
  void view(int sequence, int layer, int64_t units) override;
  int repeats() const override { return copies_.repeats(); }
  UnitAddress at(int sequence, int layer, int head, int64_t unit) override;
  void spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) override;
  int64_t moves(int, int) const override { return moves_; }

 protected:
  // Makes units [0, units) of the planes writable, of which `used` hold data.
  virtual void grow(int sequence, int layer, int64_t used, int64_t units) = 0;
  const PlacementContext& context() const { return context_; }
  Planes& planes(int sequence, int layer);
  Planes make_planes(int64_t capacity) const;
  // Replaces the planes by ones of another capacity and copies the first `used` units over.
  void regrow(int sequence, int layer, int64_t used, int64_t capacity);
  // The same for a smaller capacity; where memory has no room for the copy, the larger planes stay.
  void shrink(int sequence, int layer, int64_t used, int64_t capacity);
  void note_move() { ++moves_; }

 private:
  const PlacementContext context_;
  const AxisOrder order_;
  ReadCopies copies_;
  std::vector<std::vector<Planes>> planes_;  // [sequence][layer]
  int64_t moves_ = 0;
};

}  // namespace kv
