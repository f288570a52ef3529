// Token ids and scores in the memory of the host, or of a GPU whose attention scores the tokens.
#include "variants/core/slot_table.h"

#include <cstring>
#include <numeric>

#include "kernels/cuda/gpu.h"

namespace kv {

int64_t SlotTable::bytes(int64_t slots, SlotScores scores) {
  const int64_t slot_bytes = scores == SlotScores::kNone ? sizeof(int32_t) : sizeof(int32_t) + sizeof(float);
  return slots * slot_bytes;
}

SlotTable::SlotTable(Memory& memory, int64_t slots, SlotScores scores, const EvictionRule& rule)
    : memory_(memory),
      slots_(slots),
      rule_(rule),
      chooses_(scores == SlotScores::kOfAttention && memory.gpu()),
      block_(new_block(static_cast<size_t>(bytes(slots, scores)))) {
  if (!chooses_) return;
  // Slots fill in order, so they can have their tokens from the start.
  std::vector<int32_t> ids(static_cast<size_t>(slots));
  std::iota(ids.begin(), ids.end(), 0);
  write_tokens(ids);
  write_scores(std::vector<float>(ids.size(), 0.0f));
}

SlotTable::SlotTable(const SlotTable& other)
    : memory_(other.memory_),
      slots_(other.slots_),
      rule_(other.rule_),
      chooses_(other.chooses_),
      block_(new_block(other.block_.size())) {
  memory_.copy(block_.data(), other.block_.data(), block_.size());
}

Block SlotTable::new_block(size_t bytes) const {
  return chooses_ ? Block::of_rows(memory_, bytes, ByteKind::kMetadata)
                  : Block(memory_, bytes, ByteKind::kMetadata);
}

void SlotTable::copy(void* to, const void* from, size_t bytes) const {
  if (chooses_) return memory_.gpu()->copy(to, from, bytes);
  std::memcpy(to, from, bytes);
}

}  // namespace kv
