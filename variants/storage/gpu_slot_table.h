// The slot table of a policy that scores by attention, in a GPU's memory.
#pragma once

#include "variants/core/slot_table.h"
#include "variants/storage/device_scores.h"

namespace kv {

class GpuSlotTable : public SlotTable {
 public:
  GpuSlotTable(Memory& memory, int64_t slots, const EvictionRule& rule);
  GpuSlotTable(const GpuSlotTable& other);
  std::unique_ptr<SlotTable> clone() const override { return std::make_unique<GpuSlotTable>(*this); }
  const DeviceScores* device() const override { return &device_; }

 private:
  void copy(void* to, const void* from, size_t bytes) const override;

  DeviceScores device_;
};

}  // namespace kv
