// A buffer for one slot of a spill file.
#pragma once

#include "variants/core/memory.h"
#include "variants/placement/spill_file.h"

namespace kv::placement {

// Room for one slot, aligned as direct reads need it; where there is a GPU, pinned.
class SlotBuffer {
 public:
  SlotBuffer() = default;
  SlotBuffer(Memory& memory, int64_t bytes)
      : block_(Block::of_rows(memory, static_cast<size_t>(bytes + SpillFile::kAlignment),
                              ByteKind::kWorkspace, Tier::kWarm)) {}
  explicit operator bool() const { return static_cast<bool>(block_); }
  std::byte* data() const {
    const auto address = reinterpret_cast<uintptr_t>(block_.data());
    return block_.data() + (SpillFile::kAlignment - address % SpillFile::kAlignment) % SpillFile::kAlignment;
  }

 private:
  Block block_;
};

}  // namespace kv::placement
