// The sizes of a slot table, and the one that the host keeps.
#include "variants/storage/slot_table.h"

#include <cstring>
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

HostSlotTable::HostSlotTable(Memory& memory, int64_t slots, SlotScores scores)
    : SlotTable(memory, slots,
                Block(memory, static_cast<size_t>(bytes(slots, scores)), ByteKind::kMetadata)) {}

HostSlotTable::HostSlotTable(const HostSlotTable& other)
    : SlotTable(other, Block(other.memory(), other.size(), ByteKind::kMetadata)) {}

void HostSlotTable::copy(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

}  // namespace kv
