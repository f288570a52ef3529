// Token ids and scores in the GPU's memory, from the start.
#include "variants/storage/gpu_slot_table.h"

#include <numeric>

#include "kernels/cuda/gpu.h"

namespace kv {
namespace {

Block block_of(Memory& memory, size_t bytes) { return Block::of_rows(memory, bytes, ByteKind::kMetadata); }

}  // namespace

GpuSlotTable::GpuSlotTable(Memory& memory, int64_t slots, const EvictionRule& rule)
    : SlotTable(memory, slots, block_of(memory, static_cast<size_t>(bytes(slots, SlotScores::kOfAttention)))),
      device_{tokens(), scores(), static_cast<int32_t>(slots), static_cast<int32_t>(rule.recent),
              rule.newest_query} {
  // Slots fill in order, so they can have their tokens from the start.
  std::vector<int32_t> ids(static_cast<size_t>(slots));
  std::iota(ids.begin(), ids.end(), 0);
  write_tokens(ids);
  write_scores(std::vector<float>(ids.size(), 0.0f));
}

GpuSlotTable::GpuSlotTable(const GpuSlotTable& other)
    : SlotTable(other, block_of(other.memory(), other.size())), device_(other.device_) {
  device_.token = tokens();
  device_.score = scores();
}

void GpuSlotTable::copy(void* to, const void* from, size_t bytes) const {
  memory().gpu()->copy(to, from, bytes);
}

}  // namespace kv
