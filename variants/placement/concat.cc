// concat: every append allocates a buffer that fits exactly and copies all past rows into it, as frameworks
// do that concatenate tensors. A T-token decode copies O(T^2) rows.
#include "variants/list.h"
#include "variants/placement/planes.h"

namespace kv::placement {
namespace {

class Concat : public PlanesPlacement {
 public:
  using PlanesPlacement::PlanesPlacement;

 protected:
  void grow(int sequence, int layer, int64_t used, int64_t units) override {
    if (units > planes(sequence, layer).capacity()) regrow(sequence, layer, used, units);
  }
  void trim(int sequence, int layer, int64_t, int64_t units) override {
    shrink(sequence, layer, units, units);
  }
};

}  // namespace

const PlacementEntry concat{{.name = "concat",
                             .help = "copies all past rows into a new buffer at every append",
                             .source = "tract DynKeyValueCache, Hugging Face DynamicCache",
                             .parameters = {layout_parameter(), ReadCopies::parameter({"view", "repeat"})}},
                            {.make = make_placement<Concat>,
                             .layer_bytes = [](const Stage&, const PlacementContext& context,
                                               int64_t used) { return planes_bytes(context, used); },
                             .read = ReadCopies::mode,
                             .grain_rows = [](const Stage&) { return int64_t{1}; }}};

}  // namespace kv::placement
