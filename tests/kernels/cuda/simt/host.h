// kernels/cuda/simt/simt.h without a GPU: the same names over simt::Machine; slow, with the GPU's exact results.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "kernels/math.h"
#include "simt/machine.h"
#include "simt/tensor_core.h"

#define KV_DEVICE inline
// Static: nvcc makes a function of the same name that launches the kernel on a GPU, and the linker would choose that one.
#define KV_KERNEL static inline void
#define KV_UNROLL
#define KV_ROLLED
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
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace kv::simt {

inline constexpr int kSharedOfSm = 228 << 10;

inline int thread() { return Machine::current().thread(); }
inline int lane() { return thread() % kWarp; }
inline int warp() { return thread() / kWarp; }
inline int threads() { return Machine::current().launch().threads; }
inline int block_x() { return Machine::current().block().x; }
inline int block_y() { return Machine::current().block().y; }
inline int block_z() { return Machine::current().block().z; }
inline int blocks_x() { return Machine::current().launch().grid.x; }
inline int blocks_y() { return Machine::current().launch().grid.y; }

// The place of a call in a kernel; kernels never pass it. Clang 14 has no std::source_location.
#define KV_HERE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

inline void sync_block(KV_HERE) {
  if (!Machine::current().skips("sync_block", file, line)) Machine::current().block_barrier();
}
inline void sync_warp(KV_HERE) {
  if (!Machine::current().skips("sync_warp", file, line)) Machine::current().meet("sync_warp", 0, "", 0);
}

// The value that lane `from` brought to the meeting.
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

inline int same_in_warp(int x) { return x; }
inline bool any(bool condition, KV_HERE) {
  if (Machine::current().skips("any", file, line)) return condition;
  const std::byte* meeting = Machine::current().meet("any", 0, &condition, sizeof condition);
  bool found = false;
  for (int lane = 0; lane < kWarp; ++lane) found |= brought<bool>(meeting, lane);
  return found;
}

inline int smaller(int a, int b) { return a < b ? a : b; }
inline uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
inline uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
inline uint32_t largest_of_warp(uint32_t x, KV_HERE) {
  if (Machine::current().skips("largest_of_warp", file, line)) return x;
  const std::byte* meeting = Machine::current().meet("largest_of_warp", 0, &x, sizeof x);
  for (int lane = 0; lane < kWarp; ++lane) x = larger(x, brought<uint32_t>(meeting, lane));
  return x;
}

inline std::byte* shared_memory() { return Machine::current().shared(); }

inline unsigned count_up(unsigned* counter, unsigned last) {
  const unsigned before = *counter;
  *counter = before >= last ? 0 : before + 1;
  return before;
}
inline float read_fresh(const float* p) { return *p; }

inline float exp2(float x) { return std::exp2(x); }
inline float log2(float x) { return std::log2(x); }
inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float larger(float a, float b) { return std::fmax(a, b); }

inline float2 unpack_half2(uint32_t word) {
  return {f16_to_f32(static_cast<uint16_t>(word)), f16_to_f32(static_cast<uint16_t>(word >> 16))};
}
inline uint32_t pack_half2(float low, float high) {
  return f32_to_f16(low) | static_cast<uint32_t>(f32_to_f16(high)) << 16;
}
inline uint32_t mask_or(uint32_t word, uint32_t mask, uint32_t bits) { return (word & mask) | bits; }
inline uint32_t negative_half2(uint32_t a) { return a ^ 0x80008000u; }
// Exact if the result is a binary16 number, as in the kernels; else it may round twice.
inline uint32_t fma_half2(uint32_t a, uint32_t b, uint32_t c) {
  const float2 x = unpack_half2(a), y = unpack_half2(b), z = unpack_half2(c);
  return pack_half2(std::fma(x.x, y.x, z.x), std::fma(x.y, y.y, z.y));
}
inline float2 unpack_bfloat2(uint32_t word) {
  return {bf16_to_f32(static_cast<uint16_t>(word)), bf16_to_f32(static_cast<uint16_t>(word >> 16))};
}
inline uint32_t pack_bfloat2(float low, float high) {
  return f32_to_bf16(low) | static_cast<uint32_t>(f32_to_bf16(high)) << 16;
}
inline constexpr bool kConvertsFp8 = false;  // like a GPU's that needs code of ours
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

inline void refuse_misaligned(const std::byte* p, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0)
    throw std::logic_error("an access of " + std::to_string(bytes) + " bytes is not aligned");
}
template <class T>
T read(const std::byte* p) {
  refuse_misaligned(p, sizeof(T));
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
template <class T>
void write(std::byte* p, T value) {
  refuse_misaligned(p, sizeof value);
  std::memcpy(p, &value, sizeof value);
}

template <bool kTransposed>
void load_matrices(const std::byte* own_row, uint32_t (&word)[4]) {
  const std::byte* meeting = Machine::current().meet("load_matrices", kTransposed, &own_row, sizeof own_row);
  const int g = lane() / 4, t = lane() % 4;
  for (int m = 0; m < 4; ++m) {
    const auto row = [&](int r) { return brought<const std::byte*>(meeting, 8 * m + r); };
    if (reinterpret_cast<uintptr_t>(row(g)) % 16 != 0)
      throw std::logic_error("a matrix's row is not aligned");
    const auto half = [&](int r) { return uint32_t{read<uint16_t>(row(r) + 2 * g)}; };
    word[m] = kTransposed ? half(2 * t) | half(2 * t + 1) << 16 : read<uint32_t>(row(g) + 4 * t);
  }
}

template <class T>
T kept(T x) {
  return x;
}

inline uint4 read_once(const std::byte* p) { return read<uint4>(p); }

inline float4 read_fresh4(const float* p) { return read<float4>(reinterpret_cast<const std::byte*>(p)); }

// Reads the byte, so that the address sanitizer sees an invalid address.
inline void prefetch(const void* p) { static_cast<void>(*static_cast<const volatile char*>(p)); }

template <int kBytes>
void copy_async(void* to, const void* from) {
  Machine::current().copy_async(to, from, kBytes);
}
inline void commit_copies() { Machine::current().commit_copies(); }
template <int kPending>
void wait_copies(KV_HERE) {
  if (Machine::current().skips("wait_copies", file, line)) return;
  Machine::current().wait_copies(kPending);
}

// A lane's elements of both operands, as numbers.
struct TileOperands {
  float a[8], b[4];
};

// The definition in simt/device.h, element by element, added as tensor cores add.
inline void multiply_tiles(const char* operation, const TileOperands& own, int least, float (&c)[4]) {
  const std::byte* meeting = Machine::current().meet(operation, 0, &own, sizeof own);
  const int g = lane() / 4, t = lane() % 4;
  float a[2][16], b[2][16];
  for (int k = 0; k < 16; ++k) {
    // The lanes and positions of a(g, k), a(g + 8, k), b(k, 2t) and b(k, 2t + 1).
    const auto from_a = brought<TileOperands>(meeting, g * 4 + k % 8 / 2);
    for (int half = 0; half < 2; ++half) {
      a[half][k] = from_a.a[k / 8 * 4 + 2 * half + k % 2];
      const auto from_b = brought<TileOperands>(meeting, (2 * t + half) * 4 + k % 8 / 2);
      b[half][k] = from_b.b[k / 8 * 2 + k % 2];
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 16; k += kProductsAtOnce)
      c[i] = add_products(a[i / 2] + k, b[i % 2] + k, c[i], least);
  }
}

template <class Unpack>
TileOperands tile_operands(const uint32_t (&a)[4], const uint32_t (&b)[2], Unpack unpack) {
  TileOperands own;
  for (int i = 0; i < 4; ++i) {
    const float2 pair = unpack(a[i]);
    own.a[2 * i] = pair.x;
    own.a[2 * i + 1] = pair.y;
  }
  for (int i = 0; i < 2; ++i) {
    const float2 pair = unpack(b[i]);
    own.b[2 * i] = pair.x;
    own.b[2 * i + 1] = pair.y;
  }
  return own;
}

inline void multiply_half_tiles(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
  multiply_tiles("multiply_half_tiles", tile_operands(a, b, unpack_half2), kLeastHalf, c);
}
inline void multiply_bfloat_tiles(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
  multiply_tiles("multiply_bfloat_tiles", tile_operands(a, b, unpack_bfloat2), kLeastBfloat, c);
}

}  // namespace kv::simt
