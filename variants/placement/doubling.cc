// doubling: when room is used up, it grows by a factor, 2 where nothing is said, so n appends move O(n) rows in
// all, in O(log n) reallocations. A smaller factor reallocates more often and leaves less unused. Since rows lie
// head-major, the used part of each head is a prefix that attention reads in place (`read=view`). `read=copy`
// slices that part into a fresh buffer before every read, as a tensor library must whose slices own their memory:
// the copies that growth by a factor saved come back, O(T^2) of them.
#include "variants/list.h"
#include "variants/placement/read_copies.h"

namespace kv::placement {
namespace {

// The first of 1, ⌈f⌉, ⌈f ⌈f⌉⌉, … that holds them: room depends on the length alone, not on the way there.
int64_t capacity_for(const Stage& stage, int64_t units) {
  if (units == 0) return 0;
  const int64_t hundredths = stage.hundredths("factor");
  int64_t capacity = 1;
  while (capacity < units) capacity = (capacity * hundredths + 99) / 100;
  return capacity;
}

}  // namespace

const PlacementEntry doubling{
    {.name = "doubling",
     .help = "capacity doubles, or grows by `factor`, when used up; appends are amortised O(1)",
     .source = "tract InPlaceKvCache (PR 2321)",
     .parameters = {ReadCopies::parameter({"view", "copy", "repeat"}), layout_parameter(),
                    Parameter::decimal("factor", "2", 150, 400, {150, 300},
                                       "by which capacity grows when it is used up")}},
    {.capacity = capacity_for,
     .layer_bytes = [](const Stage& stage, const PlacementContext& context,
                       int64_t used) { return planes_bytes(context, capacity_for(stage, used)); },
     .read = ReadCopies::mode}};

}  // namespace kv::placement
