// contiguous: every sequence reserves room for the most tokens at once, [B,H,S,D] or [B,S,H,D]. Appends never
// move anything; what is not yet used is slack.
#include "variants/list.h"
#include "variants/placement/planes.h"

namespace kv::placement {
namespace {

class Contiguous : public PlanesPlacement {
 public:
  using PlanesPlacement::PlanesPlacement;

  void open(int sequence) override {
    PlanesPlacement::open(sequence);
    for (int layer = 0; layer < context().layers; ++layer)
      planes(sequence, layer) = make_planes(context().most_units(layer));
  }
  void trim(int, int, int64_t, int64_t) override {}

 protected:
  void grow(int, int, int64_t, int64_t) override {}  // open() made room for the most there can be
};

}  // namespace

const PlacementEntry contiguous{
    {.name = "contiguous",
     .help = "pre-allocated for the most tokens; appends write in place",
     .source = "[B,H,S,D] static cache",
     .parameters = {layout_parameter(), ReadCopies::parameter({"view", "repeat"})}},
    {.make = make_placement<Contiguous>,
     .layer_bytes = [](const Stage&, const PlacementContext& context,
                       int64_t) { return planes_bytes(context, context.max_units); },
     .read = ReadCopies::mode,
     .grain_rows = [](const Stage&) { return int64_t{1}; }}};

}  // namespace kv::placement
