// The slot table that the host keeps.
#pragma once

#include "variants/core/slot_table.h"

namespace kv {

class HostSlotTable : public SlotTable {
 public:
  HostSlotTable(Memory& memory, int64_t slots, SlotScores scores);
  HostSlotTable(const HostSlotTable& other);
  std::unique_ptr<SlotTable> clone() const override { return std::make_unique<HostSlotTable>(*this); }

 private:
  void copy(void* to, const void* from, size_t bytes) const override;
};

}  // namespace kv
