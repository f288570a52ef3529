// Checks each wrapper of kernels/cuda/simt/device.h alone: the shim states what a wrapper does, and the GPU's instruction must
// do the same before any kernel's result means anything.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>

#include "harness/gpu_check/checks.h"
#include "harness/gpu_check/numbers.h"
#include "kernels/cuda/simt/simt.h"
#include "kernels/math.h"

namespace kv::gpu_check {
namespace {

__global__ void unpack_halves(float2* to) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = simt::unpack_half2(i | (0xffffu - i) << 16);
}
__global__ void pack_halves(const float* from, uint32_t* to) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = simt::pack_half2(from[2 * i], from[2 * i + 1]);
}
__global__ void unpack_bfloats(float2* to) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = simt::unpack_bfloat2(i | (0xffffu - i) << 16);
}
__global__ void pack_bfloats(const float* from, uint32_t* to) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = simt::pack_bfloat2(from[2 * i], from[2 * i + 1]);
}
// Codes 0 … 255 in the low bits of the half 1024, subtracted as in kernels/cuda/attention/words.h.
__global__ void subtract_halves(float2* to) {
  const uint32_t raised = 0x64006400u | threadIdx.x | (255u - threadIdx.x) << 16;
  to[threadIdx.x] = simt::unpack_half2(simt::fma_half2(raised, 0x3c003c00u, 0xe480e480u));
}
__global__ void unpack_fp8(float2* to) {
  to[threadIdx.x] = simt::unpack_half2(simt::e4m3_to_half2(threadIdx.x | (255u - threadIdx.x) << 8));
}
__global__ void pick_bytes(uint32_t* to) {
  to[threadIdx.x] = simt::permute_bytes(0x33221100u, 0x77665544u, threadIdx.x | 0x7520u);
  to[8 + threadIdx.x] = simt::mask_or(0x01234567u * threadIdx.x, 0x00f000f0u, 0x64006400u);
  to[16 + threadIdx.x] = simt::negative_half2(0x3c00bc00u + threadIdx.x);
}
__global__ void powers(const float* from, float* to) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = simt::exp2(from[i]);
}
__global__ void shuffle_lanes(int* to) {
  to[threadIdx.x] = simt::shuffle(simt::lane(), 31 - simt::lane());
  to[32 + threadIdx.x] = simt::shuffle_xor(simt::lane(), 5);
}
// Lane l copies 4, 8 and 16 bytes.
__global__ void copy_words(const std::byte* from, uint32_t* to) {
  std::byte* room = simt::shared_memory();
  const int lane = simt::lane();
  simt::copy_async<16>(room + 16 * lane, from + 16 * lane);
  simt::copy_async<8>(room + 512 + 8 * lane, from + 8 * lane);
  simt::commit_copies();
  simt::copy_async<4>(room + 768 + 4 * lane, from + 4 * lane);
  simt::commit_copies();
  simt::wait_copies<0>();
  simt::sync_warp();
  for (int i = lane; i < 224; i += 32) to[i] = simt::read<uint32_t>(room + 4 * i);
}
// from: 32 rows of 16 bytes, of which each lane loads its own.
template <bool kTransposed>
__global__ void load_rows(const std::byte* from, uint32_t* to) {
  std::byte* own_row = simt::shared_memory() + 16 * (31 - simt::lane());
  simt::copy_async<16>(own_row, from + 16 * simt::lane());
  simt::commit_copies();
  simt::wait_copies<0>();
  simt::sync_warp();
  uint32_t word[4];
  simt::load_matrices<kTransposed>(own_row, word);
  for (int m = 0; m < 4; ++m) to[4 * simt::lane() + m] = word[m];
}
__global__ void vote(const uint32_t* from, uint2* to) {
  const uint32_t own = from[threadIdx.x];
  to[threadIdx.x] = {simt::largest_of_warp(own), simt::any(own == 7u)};
}
// Each block, of a thread, reads all numbers into its first-level cache and writes its own. The last reads them again, and writes
// [blocks] that came alone and [blocks] that came by four.
__global__ void read_again(unsigned* counter, float* numbers, float* to) {
  const int all = simt::blocks_x(), own = simt::block_x();
  float before = 0.0f;
  for (int i = 0; i < all; ++i) before += __ldca(numbers + i);
  numbers[own] = before < 0.0f ? before : static_cast<float>(own + 1);
  if (simt::count_up(counter, static_cast<unsigned>(all) - 1) != static_cast<unsigned>(all) - 1) return;
  for (int i = 0; i < all; ++i) to[i] = simt::read_fresh(numbers + i);
  for (int i = 0; i < all; i += 4) *reinterpret_cast<float4*>(to + all + i) = simt::read_fresh4(numbers + i);
}
// from: [32, 6] words, each lane's operands; to: [16, 8] f32, the product plus 1.
template <bool kBfloat>
__global__ void multiply(const uint32_t* from, float* to) {
  const int lane = simt::lane();
  const uint32_t* own = from + 6 * lane;
  const uint32_t a[4] = {own[0], own[1], own[2], own[3]}, b[2] = {own[4], own[5]};
  float c[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  if (kBfloat) {
    simt::multiply_bfloat_tiles(a, b, c);
  } else {
    simt::multiply_half_tiles(a, b, c);
  }
  for (int i = 0; i < 4; ++i) to[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[i];
}
__global__ void count(unsigned* counter, unsigned* to) { to[blockIdx.x] = simt::count_up(counter, 2); }

struct Grid {
  int blocks, threads;
  size_t shared_bytes = 0;
};

// Runs kernel(in..., to) with a buffer `to` of n results and returns them.
template <class T, class Kernel, class... In>
std::vector<T> results(cuda::CudaGpu& gpu, size_t n, Grid grid, Kernel kernel, In... in) {
  const DeviceBytes to(gpu, n * sizeof(T));
  kernel<<<grid.blocks, grid.threads, grid.shared_bytes, gpu.stream()>>>(in..., to.as<T>());
  KV_CHECK(cudaGetLastError());
  std::vector<T> values(n);
  gpu.copy(values.data(), to.as<T>(), n * sizeof(T));
  return values;
}

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Every word of two 16-bit numbers whose halves add up to 0xffff.
bool numbers_unpack(cuda::CudaGpu& gpu, void (*kernel)(float2*), float (*widen)(uint16_t)) {
  const auto got = results<float2>(gpu, 65536, {256, 256}, kernel);
  bool ok = true;
  for (uint32_t i = 0; i < 65536; ++i) {
    ok &= same(got[i].x, widen(static_cast<uint16_t>(i)));
    ok &= same(got[i].y, widen(static_cast<uint16_t>(0xffffu - i)));
  }
  return ok;
}

bool numbers_pack(cuda::CudaGpu& gpu, void (*kernel)(const float*, uint32_t*), uint16_t (*narrow)(float)) {
  std::vector<float> from(8192);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = std::ldexp(normal_number(3, static_cast<int64_t>(i)), static_cast<int>(i % 44) - 28);
  }
  const DeviceBytes in = upload(gpu, from);
  const auto got = results<uint32_t>(gpu, 4096, {16, 256}, kernel, in.as<float>());
  bool ok = true;
  for (size_t i = 0; i < got.size(); ++i) {
    ok &= got[i] == (narrow(from[2 * i]) | static_cast<uint32_t>(narrow(from[2 * i + 1])) << 16);
  }
  return ok;
}

bool halves_unpack(cuda::CudaGpu& gpu) { return numbers_unpack(gpu, unpack_halves, f16_to_f32); }
bool halves_pack(cuda::CudaGpu& gpu) { return numbers_pack(gpu, pack_halves, f32_to_f16); }
bool bfloats_unpack(cuda::CudaGpu& gpu) { return numbers_unpack(gpu, unpack_bfloats, bf16_to_f32); }
bool bfloats_pack(cuda::CudaGpu& gpu) { return numbers_pack(gpu, pack_bfloats, f32_to_bf16); }

bool halves_subtract(cuda::CudaGpu& gpu) {
  const auto got = results<float2>(gpu, 256, {1, 256}, subtract_halves);
  bool ok = true;
  for (int i = 0; i < 256; ++i) {
    ok &= got[static_cast<size_t>(i)].x == static_cast<float>(i - 128);
    ok &= got[static_cast<size_t>(i)].y == static_cast<float>(127 - i);
  }
  return ok;
}

bool fp8_unpacks(cuda::CudaGpu& gpu) {
  const auto got = results<float2>(gpu, 256, {1, 256}, unpack_fp8);
  bool ok = true;
  for (int i = 0; i < 256; ++i) {
    ok &= same(got[i].x, fp8_to_f32<kE4M3>(static_cast<uint8_t>(i)));
    ok &= same(got[i].y, fp8_to_f32<kE4M3>(static_cast<uint8_t>(255 - i)));
  }
  return ok;
}

bool bytes_are_picked(cuda::CudaGpu& gpu) {
  const auto got = results<uint32_t>(gpu, 24, {1, 8}, pick_bytes);
  bool ok = true;
  for (uint32_t i = 0; i < 8; ++i) {
    ok &= got[i] == (0x77552200u | 0x11u * i);
    ok &= got[8 + i] == ((0x01234567u * i & 0x00f000f0u) | 0x64006400u);
    ok &= got[16 + i] == ((0x3c00bc00u + i) ^ 0x80008000u);
  }
  return ok;
}

// ex2.approx errs by at most 2 ulp (PTX manual).
bool powers_are_close(cuda::CudaGpu& gpu) {
  std::vector<float> from(4096);
  for (size_t i = 0; i < from.size(); ++i) from[i] = -0.03f * static_cast<float>(i);
  from.back() = -std::numeric_limits<float>::infinity();
  const DeviceBytes in = upload(gpu, from);
  const auto got = results<float>(gpu, from.size(), {16, 256}, powers, in.as<float>());
  bool ok = got.back() == 0.0f;
  for (size_t i = 0; i + 1 < got.size(); ++i) {
    const double want = std::exp2(static_cast<double>(from[i]));
    ok &= std::fabs(got[i] - want) <= 2.4e-7 * want;
  }
  return ok;
}

bool lanes_shuffle(cuda::CudaGpu& gpu) {
  const auto got = results<int>(gpu, 64, {1, 32}, shuffle_lanes);
  bool ok = true;
  for (int i = 0; i < 32; ++i) ok &= got[i] == 31 - i && got[32 + i] == (i ^ 5);
  return ok;
}

bool copies_land(cuda::CudaGpu& gpu) {
  std::vector<uint32_t> from(128);
  for (uint32_t i = 0; i < 128; ++i) from[i] = 0x01010101u * i + 7u;
  const DeviceBytes in = upload(gpu, from);
  const auto got = results<uint32_t>(gpu, 224, {1, 32, 896}, copy_words, in.as<std::byte>());
  bool ok = true;
  for (size_t i = 0; i < 224; ++i) {
    const size_t first = i < 128 ? 0 : i < 192 ? 128 : 192;
    ok &= got[i] == from[i - first];
  }
  return ok;
}

template <bool kTransposed>
bool rows_load(cuda::CudaGpu& gpu) {
  std::vector<uint16_t> half(32 * 8);
  for (size_t i = 0; i < half.size(); ++i) half[i] = static_cast<uint16_t>(257 * i + 3);
  const DeviceBytes in = upload(gpu, half);
  const auto got = results<uint32_t>(gpu, 128, {1, 32, 512}, load_rows<kTransposed>, in.as<std::byte>());
  bool ok = true;
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t g = i / 16, t = i / 4 % 4, matrix = i % 4 * 64;
    const size_t first = matrix + (kTransposed ? 2 * t * 8 + g : g * 8 + 2 * t);
    ok &= got[i] == (half[first] | uint32_t{half[first + (kTransposed ? 8 : 1)]} << 16);
  }
  return ok;
}

// Two warps: the largest number is the first lane's and has its top bit set; only one lane of the first warp has a 7.
bool warps_vote(cuda::CudaGpu& gpu) {
  std::vector<uint32_t> from(64);
  for (uint32_t i = 0; i < 64; ++i) from[i] = 100 + i;
  from[0] = from[32] = 0x80000001u;
  from[31] = 7;
  const DeviceBytes in = upload(gpu, from);
  const auto got = results<uint2>(gpu, 64, {1, 64}, vote, in.as<uint32_t>());
  bool ok = true;
  for (size_t i = 0; i < 64; ++i) ok &= got[i].x == 0x80000001u && got[i].y == (i < 32 ? 1u : 0u);
  return ok;
}

bool reads_are_fresh(cuda::CudaGpu& gpu) {
  constexpr size_t kBlocks = 256;
  const DeviceBytes counter = upload(gpu, std::vector<unsigned>{0});
  const DeviceBytes numbers = upload(gpu, std::vector<float>(kBlocks));
  const auto got =
      results<float>(gpu, 2 * kBlocks, {kBlocks, 1}, read_again, counter.as<unsigned>(), numbers.as<float>());
  bool ok = true;
  for (size_t i = 0; i < got.size(); ++i) ok &= got[i] == static_cast<float>(i % kBlocks + 1);
  return ok;
}

// A throw in a captured function ends the capture.
bool captures_end(cuda::CudaGpu& gpu) {
  bool thrown = false;
  try {
    gpu.time_us(cuda::Gpu::Timed::kGraph, [] { throw std::runtime_error("planned"); });
  } catch (const std::runtime_error&) {
    thrown = true;
  }
  return thrown && gpu.time_us(cuda::Gpu::Timed::kGraph, [] {}) >= 0.0;
}

// All sums are exact; a and b are whole numbers times these.
bool tiles_multiply(cuda::CudaGpu& gpu, void (*kernel)(const uint32_t*, float*), uint16_t (*narrow)(float),
                    float of_a = 1.0f, float of_b = 1.0f) {
  std::vector<float> a(16 * 16), b(16 * 8);
  for (size_t i = 0; i < a.size(); ++i) a[i] = of_a * (static_cast<float>(i * 7 % 17) - 8.0f);
  for (size_t i = 0; i < b.size(); ++i) b[i] = of_b * (static_cast<float>(i * 5 % 13) - 6.0f);
  const auto pair = [&](float low, float high) { return narrow(low) | uint32_t{narrow(high)} << 16; };
  std::vector<uint32_t> from;
  for (size_t lane = 0; lane < 32; ++lane) {
    const size_t g = lane / 4, t = lane % 4;
    for (size_t i = 0; i < 4; ++i) {
      const size_t at = (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
      from.push_back(pair(a[at], a[at + 1]));
    }
    for (size_t i = 0; i < 2; ++i) {
      from.push_back(pair(b[(2 * t + 8 * i) * 8 + g], b[(2 * t + 8 * i + 1) * 8 + g]));
    }
  }
  const DeviceBytes in = upload(gpu, from);
  const auto got = results<float>(gpu, 128, {1, 32}, kernel, in.as<uint32_t>());
  bool ok = true;
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 8; ++column) {
      float want = 1.0f;
      for (size_t k = 0; k < 16; ++k) want += a[row * 16 + k] * b[k * 8 + column];
      ok &= got[row * 8 + column] == want;
    }
  }
  return ok;
}
bool half_tiles_multiply(cuda::CudaGpu& gpu) { return tiles_multiply(gpu, multiply<false>, f32_to_f16); }
// Codes of K are read as subnormal numbers (kernels/cuda/attention/words.h).
bool subnormal_tiles_multiply(cuda::CudaGpu& gpu) {
  return tiles_multiply(gpu, multiply<false>, f32_to_f16, 0x1p11f, 0x1p-24f);
}
bool bfloat_tiles_multiply(cuda::CudaGpu& gpu) { return tiles_multiply(gpu, multiply<true>, f32_to_bf16); }

bool counts_wrap(cuda::CudaGpu& gpu) {
  const DeviceBytes counter = upload(gpu, std::vector<unsigned>{0});
  auto got = results<unsigned>(gpu, 6, {6, 1}, count, counter.as<unsigned>());
  std::sort(got.begin(), got.end());
  return got == std::vector<unsigned>{0, 0, 1, 1, 2, 2};
}

__global__ void add_words(const uint32_t* from, int n, unsigned long long* to) {
  unsigned long long sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) sum += from[i];
  atomicAdd(to, sum);
}

// Pieces pass from pinned memory through two slots; a slot is overwritten once its kernel has read it.
bool queues_wait(cuda::CudaGpu& gpu) {
  constexpr int kPieces = 12, kSlots = 2, kWords = 1 << 20;
  constexpr size_t kBytes = kWords * sizeof(uint32_t);
  using Queue = cuda::Gpu::Queue;
  std::byte* const pinned = gpu.allocate(kPieces * kBytes, cuda::Gpu::Place::kPinned);
  for (int i = 0; i < kPieces * kWords; ++i)
    reinterpret_cast<uint32_t*>(pinned)[i] = static_cast<uint32_t>(i / kWords + 1);
  const DeviceBytes slots(gpu, kSlots * kBytes), sums = upload(gpu, std::vector<unsigned long long>(kPieces));
  cuda::Gpu::Mark done[kSlots] = {};
  for (int i = 0; i < kPieces; ++i) {
    uint32_t* slot = slots.as<uint32_t>() + i % kSlots * kWords;
    if (i >= kSlots) gpu.wait(Queue::kPrefetch, done[i % kSlots]);
    gpu.prefetch(slot, pinned + static_cast<size_t>(i) * kBytes, kBytes);
    gpu.wait(Queue::kMain, gpu.mark(Queue::kPrefetch));
    add_words<<<1, 256, 0, gpu.stream()>>>(slot, kWords, sums.as<unsigned long long>() + i);
    KV_CHECK(cudaGetLastError());
    done[i % kSlots] = gpu.mark(Queue::kMain);
  }
  std::vector<unsigned long long> got(kPieces);
  gpu.copy(got.data(), sums.as<unsigned long long>(), got.size() * sizeof(got[0]));
  gpu.release(pinned, cuda::Gpu::Place::kPinned);
  bool ok = true;
  for (size_t i = 0; i < got.size(); ++i) ok &= got[i] == (i + 1) * size_t{kWords};
  return ok;
}

}  // namespace

bool check_wrappers(cuda::CudaGpu& gpu) {
  struct Check {
    const char* name;
    bool (*passes)(cuda::CudaGpu&);
  };
  bool all = true;
  for (const Check& check : {Check{"unpack_half2", halves_unpack},
                             Check{"pack_half2", halves_pack},
                             Check{"unpack_bfloat2", bfloats_unpack},
                             Check{"pack_bfloat2", bfloats_pack},
                             Check{"fma_half2", halves_subtract},
                             Check{"e4m3_to_half2", fp8_unpacks},
                             Check{"permute_bytes", bytes_are_picked},
                             Check{"exp2", powers_are_close},
                             Check{"shuffles", lanes_shuffle},
                             Check{"copy_async", copies_land},
                             Check{"load_matrices", rows_load<false>},
                             Check{"load_matrices transposed", rows_load<true>},
                             Check{"half tiles", half_tiles_multiply},
                             Check{"subnormal tiles", subnormal_tiles_multiply},
                             Check{"bfloat tiles", bfloat_tiles_multiply},
                             Check{"votes", warps_vote},
                             Check{"count_up", counts_wrap},
                             Check{"read_fresh", reads_are_fresh},
                             Check{"queues", queues_wait},
                             Check{"captures", captures_end}}) {
    const bool ok = check.passes(gpu);
    std::printf("{\"stage\": \"wrappers\", \"name\": \"%s\", \"status\": \"%s\"}\n", check.name,
                ok ? "ok" : "failed");
    std::fflush(stdout);
    all &= ok;
  }
  return all;
}

}  // namespace kv::gpu_check
