// Token ids and scores in the host's memory, not initialised.
#include "variants/storage/host_slot_table.h"

#include <cstring>

namespace kv {

HostSlotTable::HostSlotTable(Memory& memory, int64_t slots, SlotScores scores)
    : SlotTable(memory, slots,
                Block(memory, static_cast<size_t>(bytes(slots, scores)), ByteKind::kMetadata)) {}

HostSlotTable::HostSlotTable(const HostSlotTable& other)
    : SlotTable(other, Block(other.memory(), other.size(), ByteKind::kMetadata)) {}

void HostSlotTable::copy(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

}  // namespace kv
