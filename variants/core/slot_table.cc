// The size of a slot table, and a copy of one.
#include "variants/core/slot_table.h"

#include <utility>

namespace kv {

int64_t SlotTable::bytes(int64_t slots, SlotScores scores) {
  const int64_t slot_bytes = scores == SlotScores::kNone ? sizeof(int32_t) : sizeof(int32_t) + sizeof(float);
  return slots * slot_bytes;
}

SlotTable::SlotTable(const SlotTable& other, Block block)
    : SlotTable(other.memory_, other.slots_, std::move(block)) {
  memory_.copy(block_.data(), other.block_.data(), block_.size());
}

}  // namespace kv
