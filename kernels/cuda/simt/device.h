// kernels/cuda/simt/simt.h on a GPU: every wrapper is one or two instructions, in PTX that needs sm_80.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>

#define KV_DEVICE __device__ __forceinline__
#define KV_KERNEL __global__ void
// For loops that compilers find too long to unroll; cuda_report_test notices a missing one.
#define KV_UNROLL _Pragma("unroll")
#define KV_ROLLED _Pragma("unroll 1")
// The most threads a block and the blocks that an SM should hold; they decide the registers a thread.
#define KV_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)

namespace kv::simt {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;
// Code for GPUs of 8.0 runs on those of 8.6 as well.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
inline constexpr int kSharedOfSm = 100 << 10;
#else
inline constexpr int kSharedOfSm = 228 << 10;
#endif

KV_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
KV_DEVICE int lane() { return static_cast<int>(threadIdx.x % kWarp); }
KV_DEVICE int warp() { return static_cast<int>(threadIdx.x / kWarp); }
KV_DEVICE int threads() { return static_cast<int>(blockDim.x); }
KV_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
KV_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
KV_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
KV_DEVICE int blocks_x() { return static_cast<int>(gridDim.x); }
KV_DEVICE int blocks_y() { return static_cast<int>(gridDim.y); }

KV_DEVICE void sync_block() { __syncthreads(); }
KV_DEVICE void sync_warp() { __syncwarp(); }

template <class T>
KV_DEVICE T shuffle(T value, int from_lane) {
  return __shfl_sync(kAllLanes, value, from_lane);
}
template <class T>
KV_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}

// Tells the compiler that x is the same in all lanes.
KV_DEVICE int same_in_warp(int x) { return __shfl_sync(kAllLanes, x, 0); }
// True if any lane's condition is.
KV_DEVICE bool any(bool condition) { return __any_sync(kAllLanes, condition); }

KV_DEVICE int smaller(int a, int b) { return a < b ? a : b; }
KV_DEVICE uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
KV_DEVICE uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
KV_DEVICE uint32_t largest_of_warp(uint32_t x) { return __reduce_max_sync(kAllLanes, x); }

// The block's dynamic shared memory, aligned to 128.
KV_DEVICE std::byte* shared_memory() {
  extern __shared__ __align__(128) unsigned char kv_shared_memory[];
  return reinterpret_cast<std::byte*>(kv_shared_memory);
}

// Adds 1, or sets 0 after `last`; returns the value before. It releases what its block's threads wrote before the barrier that
// comes before it. It acquires what earlier counts released, for all threads behind the next barrier. One thread's instruction
// is enough, since causality order passes through barriers (PTX ISA, memory consistency model, causality order).
KV_DEVICE unsigned count_up(unsigned* counter, unsigned last) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(counter)), "r"(last)
               : "memory");
  return before;
}
// Reads what another block wrote, past the first-level cache: nobody reads it again. Behind count_up() a plain read would be
// right as well.
KV_DEVICE float read_fresh(const float* p) { return __ldcg(p); }
// Four at an address that is aligned to 16 bytes.
KV_DEVICE float4 read_fresh4(const float* p) { return __ldcg(reinterpret_cast<const float4*>(p)); }

KV_DEVICE float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KV_DEVICE float log2(float x) { return ::log2f(x); }
KV_DEVICE float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
KV_DEVICE float larger(float a, float b) { return ::fmaxf(a, b); }

// Picks bytes of a (0 … 3) and b (4 … 7) by the nibbles of `selector`, the lowest first.
KV_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

// Unpacks two binary16 numbers of a word, the lower first, exactly; packs them, rounded to nearest even.
KV_DEVICE float2 unpack_half2(uint32_t word) {
  return __half22float2(__halves2half2(__ushort_as_half(word & 0xffffu), __ushort_as_half(word >> 16)));
}
KV_DEVICE uint32_t pack_half2(float low, float high) {
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
// word & mask | bits in one instruction, which compilers would not choose.
KV_DEVICE uint32_t mask_or(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(word), "r"(mask), "r"(bits));
  return d;
}
KV_DEVICE uint32_t negative_half2(uint32_t a) {
  uint32_t d;
  asm("neg.f16x2 %0, %1;" : "=r"(d) : "r"(a));
  return d;
}
// a * b + c of both halves, for results that need no rounding.
KV_DEVICE uint32_t fma_half2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// The same for two bfloat16 numbers.
KV_DEVICE float2 unpack_bfloat2(uint32_t word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}
KV_DEVICE uint32_t pack_bfloat2(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
// True on GPUs that convert FP8 themselves; older ones take dozens of instructions.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
inline constexpr bool kConvertsFp8 = false;
#else
inline constexpr bool kConvertsFp8 = true;
#endif
// Converts two FP8 numbers in the lower half of a word, exactly.
KV_DEVICE uint32_t e4m3_to_half2(uint32_t two) {
  const __half2_raw h = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3);
  return static_cast<uint32_t>(h.x) | static_cast<uint32_t>(h.y) << 16;
}

// Hides where x comes from: the compiler keeps a pointer in a register instead of recomputing it, and nothing that is made of an
// index.
KV_DEVICE const std::byte* kept(const std::byte* x) {
  asm volatile("" : "+l"(x));
  return x;
}
KV_DEVICE int kept(int x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200  // for older GPUs compilers choose well
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// Reads and writes memory that is aligned to the size of T.
template <class T>
KV_DEVICE T read(const std::byte* p) {
  return *reinterpret_cast<const T*>(p);
}
template <class T>
KV_DEVICE void write(std::byte* p, T value) {
  *reinterpret_cast<T*>(p) = value;
}

// Loads four matrices of 8 rows of 16 bytes from shared memory; lane 8m + r has the address of row r of matrix m. A lane gets
// word t of row g of every matrix; transposed, halves g of rows 2t and 2t + 1 (g = lane / 4, t = lane % 4).
template <bool kTransposed>
KV_DEVICE void load_matrices(const std::byte* own_row, uint32_t (&word)[4]) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(own_row));
#define KV_LOAD_MATRICES(how)                                                            \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];" \
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])              \
               : "r"(from)                                                               \
               : "memory")
  if constexpr (kTransposed) {
    KV_LOAD_MATRICES(".trans");
  } else {
    KV_LOAD_MATRICES("");
  }
}

// Reads 16 bytes that nobody reads again.
KV_DEVICE uint4 read_once(const std::byte* p) { return __ldcs(reinterpret_cast<const uint4*>(p)); }

// Prefetches to the L2 without waiting.
KV_DEVICE void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// Copies 4, 8 or 16 bytes from global to shared memory without waiting; both addresses are aligned to the size. 16 bytes bypass
// the first-level cache.
template <int kBytes>
KV_DEVICE void copy_async(void* to, const void* from) {
  const auto target = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(target), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(target), "l"(from), "n"(kBytes)
                 : "memory");
  }
}
KV_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all of this thread's groups but the newest kPending.
template <int kPending>
KV_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// c [16, 8] += a [16, 16] * b [16, 8], 16-bit numbers in, f32 sums. All lanes must take part. The compiler may move it to where
// its sums are used, which is in all lanes too; cuda_report_test finds none behind a branch. With g = lane / 4 and t = lane % 4
// a lane holds
//   a: rows g, g+8, g, g+8 of columns 2t, 2t, 2t+8, 2t+8 (and the right neighbour of each)
//   b: rows 2t, 2t+8 (and the one below each) of column g
//   c: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
#define KV_MULTIPLY_TILES(type)                                              \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
      ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
KV_DEVICE void multiply_half_tiles(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
  KV_MULTIPLY_TILES("f16");
}
KV_DEVICE void multiply_bfloat_tiles(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
  KV_MULTIPLY_TILES("bf16");
}

}  // namespace kv::simt
