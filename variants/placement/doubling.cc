// doubling: room is a power of two and doubles when it is used up, so n appends move O(n) rows in all, in at
// most log2(n) + 1 reallocations. Since rows lie head-major, the used part of each head is a prefix that
// attention reads in place (`read=view`). `read=copy` slices that part into a fresh buffer before every read,
// as a tensor library must whose slices own their memory: the copies that doubling saved come back, O(T^2) of
// them.
#include <bit>

#include "variants/list.h"
#include "variants/placement/planes.h"

namespace kv::placement {
namespace {

int64_t capacity_for(int64_t units) {
  return units == 0 ? 0 : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(units)));
}

class Doubling : public PlanesPlacement {
 public:
  Doubling(const Stage& stage, const PlacementContext& context)
      : PlanesPlacement(context), copies_(stage.text("read") == "copy") {}

  void trim(int sequence, int layer, int64_t, int64_t units) override {
    const int64_t capacity = capacity_for(units);
    if (capacity < planes(sequence, layer).capacity()) regrow(sequence, layer, units, capacity);
  }

  void close(int sequence) override {
    if (static_cast<size_t>(sequence) < slices_.size()) slices_[sequence].clear();
    PlanesPlacement::close(sequence);
  }

  void view(int sequence, int layer, int64_t units) override {
    if (!copies_) return;
    // The last slice is gone before the next is made, as when a tensor is dropped.
    slice(sequence, layer) = Planes();
    Planes fresh(context(), units, ByteKind::kWorkspace, ByteKind::kWorkspace);
    fresh.copy_from(planes(sequence, layer), units);
    slice(sequence, layer) = std::move(fresh);
    note_move();
  }

  void spans(int sequence, int layer, int head, int64_t from, int64_t rows, SpanList& out) override {
    (copies_ ? slice(sequence, layer) : planes(sequence, layer)).spans(head, from, rows, out);
  }

 protected:
  void grow(int sequence, int layer, int64_t used, int64_t units) override {
    if (units > planes(sequence, layer).capacity()) regrow(sequence, layer, used, capacity_for(units));
  }

 private:
  Planes& slice(int sequence, int layer) {
    if (static_cast<size_t>(sequence) >= slices_.size()) slices_.resize(static_cast<size_t>(sequence) + 1);
    slices_[sequence].resize(static_cast<size_t>(context().layers));
    return slices_[sequence][layer];
  }

  bool copies_;
  std::vector<std::vector<Planes>> slices_;  // [sequence][layer], read=copy only
};

std::unique_ptr<Placement> make(const Stage& stage, const PlacementContext& context) {
  return std::make_unique<Doubling>(stage, context);
}
int64_t layer_bytes(const Stage&, const PlacementContext& context, int64_t used) {
  return planes_bytes(context, capacity_for(used));
}

}  // namespace

const PlacementEntry doubling{
    {.name = "doubling",
     .help = "capacity doubles when it is used up; appends are amortised O(1)",
     .source = "tract InPlaceKvCache (PR 2321)",
     .parameters = {Parameter::choice("read", {"view", "copy"}, "read in place, or slice to a copy first")}},
    make,
    layer_bytes};

}  // namespace kv::placement
