// kernels/cuda/simt.h without a GPU: the same names over simt::Machine. Slow, and exact where the GPU is.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "kernels/math.h"
#include "simt/machine.h"

#define KV_DEVICE inline
#define KV_KERNEL inline void
#define KV_UNROLL
#define KV_LAUNCH_BOUNDS(threads, blocks)

struct float2 {
  float x, y;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

namespace kv::simt {

inline int thread() { return Machine::current().thread(); }
inline int lane() { return thread() % kWarp; }
inline int warp() { return thread() / kWarp; }
inline int threads() { return Machine::current().launch().threads; }
inline int block_x() { return Machine::current().block().x; }
inline int block_y() { return Machine::current().block().y; }
inline int block_z() { return Machine::current().block().z; }
inline int blocks_x() { return Machine::current().launch().grid.x; }

// Where a kernel calls; never given by the kernel. (Clang 14 has no std::source_location.)
#define KV_HERE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

inline void sync_block(KV_HERE) {
  if (!Machine::current().skips("sync_block", file, line)) Machine::current().block_barrier();
}
inline void sync_warp(KV_HERE) {
  if (!Machine::current().skips("sync_warp", file, line)) Machine::current().meet("sync_warp", 0, "", 0);
}

// What lane `from` brought to the meeting.
template <class T>
T brought(const std::byte* meeting, int from) {
  T value;
  std::memcpy(&value, meeting + static_cast<size_t>(from % kWarp) * Machine::kRoom, sizeof(T));
  return value;
}

template <class T>
T shuffle(T value, int from_lane, KV_HERE) {
  if (Machine::current().skips("shuffle", file, line)) return value;
  return brought<T>(Machine::current().meet("shuffle", 0, &value, sizeof(T)), from_lane);
}
template <class T>
T shuffle_xor(T value, int mask, KV_HERE) {
  if (Machine::current().skips("shuffle_xor", file, line)) return value;
  return brought<T>(Machine::current().meet("shuffle_xor", mask, &value, sizeof(T)), lane() ^ mask);
}

inline std::byte* shared_memory() { return Machine::current().shared(); }

inline unsigned count_up(unsigned* counter, unsigned last) {
  const unsigned before = *counter;
  *counter = before >= last ? 0 : before + 1;
  return before;
}
inline void fence() {}

inline float exp2(float x) { return std::exp2(x); }
inline float log2(float x) { return std::log2(x); }
inline float fma(float a, float b, float c) { return std::fma(a, b, c); }

inline float2 unpack_half2(uint32_t word) {
  return {f16_to_f32(static_cast<uint16_t>(word)), f16_to_f32(static_cast<uint16_t>(word >> 16))};
}
inline uint32_t pack_half2(float low, float high) {
  return f32_to_f16(low) | static_cast<uint32_t>(f32_to_f16(high)) << 16;
}
inline uint32_t e4m3_to_half2(uint32_t two) {
  return pack_half2(fp8_to_f32<kE4M3>(static_cast<uint8_t>(two)),
                    fp8_to_f32<kE4M3>(static_cast<uint8_t>(two >> 8)));
}
inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = a | uint64_t{b} << 32;
  uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    picked |= static_cast<uint32_t>(both >> (8 * (selector >> (4 * i) & 7u)) & 0xffu) << (8 * i);
  }
  return picked;
}

template <class T>
T read(const std::byte* p) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(T) != 0) {
    throw std::logic_error("a read of " + std::to_string(sizeof(T)) + " bytes is not aligned");
  }
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <int kBytes>
void copy_async(void* to, const void* from, bool there) {
  Machine::current().copy_async(to, there ? from : nullptr, kBytes);
}
inline void commit_copies() { Machine::current().commit_copies(); }
template <int kPending>
void wait_copies(KV_HERE) {
  if (Machine::current().skips("wait_copies", file, line)) return;
  Machine::current().wait_copies(kPending);
}

inline const std::byte* meet_with_rows(const char* operation, const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) throw std::logic_error("a tile's row is not aligned to 16");
  return Machine::current().meet(operation, 0, &row, sizeof row);
}

inline void load_tiles(const void* row, uint32_t (&word)[4]) {
  const std::byte* meeting = meet_with_rows("load_tiles", row);
  for (int tile = 0; tile < 4; ++tile) {
    const auto* address = brought<const std::byte*>(meeting, tile * 8 + lane() / 4);
    std::memcpy(&word[tile], address + 4 * (lane() % 4), 4);
  }
}

inline void load_tiles_transposed(const void* row, uint32_t (&word)[4]) {
  const std::byte* meeting = meet_with_rows("load_tiles_transposed", row);
  for (int tile = 0; tile < 4; ++tile) {
    uint16_t element[2];
    for (int i = 0; i < 2; ++i) {
      const auto* address = brought<const std::byte*>(meeting, tile * 8 + 2 * (lane() % 4) + i);
      std::memcpy(&element[i], address + 2 * (lane() / 4), 2);
    }
    word[tile] = element[0] | static_cast<uint32_t>(element[1]) << 16;
  }
}

struct TileOperands {
  uint32_t a[4], b[2];
  float element_a(int i) const { return f16_to_f32(static_cast<uint16_t>(a[i / 2] >> (16 * (i % 2)))); }
  float element_b(int i) const { return f16_to_f32(static_cast<uint16_t>(b[i / 2] >> (16 * (i % 2)))); }
};

// By the definition in simt_device.h, element by element.
inline void multiply_tiles(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
  TileOperands own;
  std::memcpy(own.a, a, sizeof own.a);
  std::memcpy(own.b, b, sizeof own.b);
  const std::byte* meeting = Machine::current().meet("multiply_tiles", 0, &own, sizeof own);
  const int g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    double sum = double{c[i]};
    for (int k = 0; k < 16; ++k) {
      // Which lane holds a(row, k) and b(k, column), and where.
      const auto from_a = brought<TileOperands>(meeting, row % 8 * 4 + k % 8 / 2);
      const auto from_b = brought<TileOperands>(meeting, column * 4 + k % 8 / 2);
      sum += double{from_a.element_a(2 * (row / 8 + 2 * (k / 8)) + k % 2)} *
             double{from_b.element_b(2 * (k / 8) + k % 2)};
    }
    c[i] = static_cast<float>(sum);
  }
}

}  // namespace kv::simt
