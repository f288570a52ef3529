// The slot table of a policy that scores by attention, in a GPU's memory.
#pragma once

#include "variants/core/retention.h"
#include "variants/core/slot_table.h"
#include "variants/storage/device_scores.h"

namespace kv {

class GpuSlotTable : public SlotTable {
 public:
  GpuSlotTable(Memory& memory, int64_t slots, const EvictionRule& rule);
  GpuSlotTable(const GpuSlotTable& other);
  std::unique_ptr<SlotTable> clone() const override { return std::make_unique<GpuSlotTable>(*this); }
  bool chooses() const override { return true; }
  const DeviceScores& device() const { return device_; }

 private:
  void copy(void* to, const void* from, size_t bytes) const override;

  DeviceScores device_;
};

// The scores of a policy whose table chooses, or null.
inline const DeviceScores* device_scores(const Retention& policy) {
  const SlotTable* table = policy.choosing_table();
  return table ? &static_cast<const GpuSlotTable*>(table)->device() : nullptr;
}

}  // namespace kv
