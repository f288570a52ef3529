// Scratch memory that grows with a step's needs and is kept for the next step.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "variants/core/memory.h"

namespace kv {

// Room for at least `bytes`. Grows in steps of an eighth, so that a growing sequence does not ask for a new
// block at every token; what the block held is lost then.
inline std::byte* fit(Memory& memory, Block& block, size_t bytes) {
  if (block.size() < bytes) {
    const size_t grain = std::max<size_t>(64, std::bit_ceil(bytes) / 8);
    block = Block();
    block = Block(memory, (bytes + grain - 1) / grain * grain, ByteKind::kWorkspace);
  }
  return block.data();
}

}  // namespace kv
