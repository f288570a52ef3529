// Vectors whose memory the ledger sees: span lists, since blocks of a few rows make long ones (a span is 88 bytes, a row of
// f16 at head_dim 128 is 512), and tables of blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/span.h"
#include "variants/core/memory.h"

namespace kv {

// A standard allocator over a Memory. Without one, nothing is counted.
template <class T>
struct CountingAllocator {
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  Memory* memory = nullptr;
  ByteKind kind = ByteKind::kWorkspace;

  CountingAllocator() = default;
  explicit CountingAllocator(Memory* m, ByteKind k = ByteKind::kWorkspace) : memory(m), kind(k) {}
  template <class U>
  CountingAllocator(const CountingAllocator<U>& other) : memory(other.memory), kind(other.kind) {}

  T* allocate(size_t count) {
    return memory ? reinterpret_cast<T*>(memory->allocate(count * sizeof(T), kind))
                  : std::allocator<T>().allocate(count);
  }
  void deallocate(T* p, size_t count) noexcept {
    memory ? memory->release(reinterpret_cast<std::byte*>(p)) : std::allocator<T>().deallocate(p, count);
  }
  template <class U>
  bool operator==(const CountingAllocator<U>& other) const {
    return memory == other.memory;
  }
};

template <class T>
using CountedVector = std::vector<T, CountingAllocator<T>>;
using SpanList = CountedVector<Span>;

}  // namespace kv
