// The layout of rows in a slot of a spill file: [plane][head][unit], planes in kPieceOrder, each with units of its own size.
#pragma once

#include <array>
#include <cstdint>

#include "variants/core/placement.h"

namespace kv::placement {

class SlotLayout {
 public:
  // A slot has `units` units of each head. The context outlives it.
  SlotLayout(const PlacementContext& context, int64_t units) : context_(context), units_(units) {}

  int64_t units() const { return units_; }
  const UnitLayout& unit() const { return context_.unit; }
  int64_t plane_bytes(int plane) const { return context_.unit.bytes[plane] * units_; }  // a head's
  // From the slot's begin.
  int64_t offset(int plane, int head, int64_t unit) const {
    int64_t bytes = 0;
    for (auto p = kPieceOrder.begin(); *p != plane; ++p) bytes += plane_bytes(*p) * context_.heads;
    return bytes + plane_bytes(plane) * head + context_.unit.bytes[plane] * unit;
  }
  // A head's first unit, in a slot that is in memory; null of planes that the codec does not have.
  template <class Byte>
  std::array<Byte*, kPlanes> at(Byte* slot, int head) const {
    std::array<Byte*, kPlanes> planes{};
    for (int p = 0; p < kPlanes; ++p) planes[p] = plane_bytes(p) > 0 ? slot + offset(p, head, 0) : nullptr;
    return planes;
  }

 private:
  const PlacementContext& context_;
  const int64_t units_;
};

}  // namespace kv::placement
