// Span lists that the ledger sees. Blocks of a few rows make long lists (a span is 88 bytes, a row of f16 at
// head_dim 128 is 512), so what they take is counted, as workspace.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include "kernels/span.h"
#include "variants/core/memory.h"

namespace kv {

// A standard allocator over a Memory.
template <class T>
struct WorkspaceAllocator {
  using value_type = T;
  Memory* memory;

  explicit WorkspaceAllocator(Memory& m) : memory(&m) {}
  template <class U>
  WorkspaceAllocator(const WorkspaceAllocator<U>& other) : memory(other.memory) {}

  T* allocate(size_t count) {
    return reinterpret_cast<T*>(memory->allocate(count * sizeof(T), ByteKind::kWorkspace));
  }
  void deallocate(T* p, size_t) noexcept { memory->release(reinterpret_cast<std::byte*>(p)); }
  template <class U>
  bool operator==(const WorkspaceAllocator<U>& other) const {
    return memory == other.memory;
  }
};

using SpanList = std::vector<Span, WorkspaceAllocator<Span>>;

}  // namespace kv
