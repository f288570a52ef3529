// Checks of each wrapper of kernels/cuda/simt/ alone, on a GPU (wrappers.cu) and on the shim (tests): the shim states what a
// wrapper does, and the GPU's instruction must do the same before any kernel's result means anything.
//
// A kernel is an object, which the machine calls in every thread with the thread's number in the grid. A machine has gpu(), a
// cuda::Gpu, and launch(grid, kernel, arguments…).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/gpu_check/device_bytes.h"
#include "harness/gpu_check/numbers.h"
#include "kernels/cuda/simt/simt.h"
#include "kernels/math.h"

namespace kv::gpu_check {

struct Grid {
  int blocks, threads;
  size_t shared_bytes = 0;
};

template <float2 (*kUnpack)(uint32_t)>
struct Unpack {
  KV_DEVICE void operator()(uint32_t i, float2* to) const { to[i] = kUnpack(i | (0xffffu - i) << 16); }
};
template <uint32_t (*kPack)(float, float)>
struct Pack {
  KV_DEVICE void operator()(uint32_t i, const float* from, uint32_t* to) const {
    to[i] = kPack(from[2 * i], from[2 * i + 1]);
  }
};
// Codes 0 … 255 in the low bits of the half 1024, subtracted as in kernels/cuda/attention/words.h.
struct SubtractHalves {
  KV_DEVICE void operator()(uint32_t i, float2* to) const {
    const uint32_t raised = 0x64006400u | i | (255u - i) << 16;
    to[i] = simt::unpack_half2(simt::fma_half2(raised, 0x3c003c00u, 0xe480e480u));
  }
};
struct UnpackFp8 {
  KV_DEVICE void operator()(uint32_t i, float2* to) const {
    to[i] = simt::unpack_half2(simt::e4m3_to_half2(i | (255u - i) << 8));
  }
};
struct PickBytes {
  KV_DEVICE void operator()(uint32_t i, uint32_t* to) const {
    if (i >= 8) return;
    to[i] = simt::permute_bytes(0x33221100u, 0x77665544u, i | 0x7520u);
    to[8 + i] = simt::mask_or(0x01234567u * i, 0x00f000f0u, 0x64006400u);
    to[16 + i] = simt::negative_half2(0x3c00bc00u + i);
  }
};
struct Powers {
  KV_DEVICE void operator()(uint32_t i, const float* from, float* to) const { to[i] = simt::exp2(from[i]); }
};
struct ShuffleLanes {
  KV_DEVICE void operator()(uint32_t i, int* to) const {
    to[i] = simt::shuffle(simt::lane(), 31 - simt::lane());
    to[32 + i] = simt::shuffle_xor(simt::lane(), 5);
  }
};
// Lane l copies 4, 8 and 16 bytes.
struct CopyWords {
  KV_DEVICE void operator()(uint32_t, const std::byte* from, uint32_t* to) const {
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
};
// from: 32 rows of 16 bytes, of which each lane loads its own.
template <bool kTransposed>
struct LoadRows {
  KV_DEVICE void operator()(uint32_t, const std::byte* from, uint32_t* to) const {
    std::byte* own_row = simt::shared_memory() + 16 * (31 - simt::lane());
    simt::copy_async<16>(own_row, from + 16 * simt::lane());
    simt::commit_copies();
    simt::wait_copies<0>();
    simt::sync_warp();
    uint32_t word[4];
    simt::load_matrices<kTransposed>(own_row, word);
    for (int m = 0; m < 4; ++m) to[4 * simt::lane() + m] = word[m];
  }
};
struct Vote {
  KV_DEVICE void operator()(uint32_t i, const uint32_t* from, uint2* to) const {
    to[i] = {simt::largest_of_warp(from[i]), simt::any(from[i] == 7u)};
  }
};
// The first thread of each block reads all numbers into its first-level cache and writes its own. The last block reads them
// again, and writes [blocks] that came alone and [blocks] that came by four.
struct ReadAgain {
  KV_DEVICE void operator()(uint32_t, unsigned* counter, float* numbers, float* to) const {
    if (simt::thread() != 0) return;
    const int all = simt::blocks_x(), own = simt::block_x();
    float before = 0.0f;
    for (int i = 0; i < all; ++i) {
#ifdef __CUDACC__
      before += __ldca(numbers + i);
#else
      before += numbers[i];
#endif
    }
    numbers[own] = before < 0.0f ? before : static_cast<float>(own + 1);
    if (simt::count_up(counter, static_cast<unsigned>(all) - 1) != static_cast<unsigned>(all) - 1) return;
    for (int i = 0; i < all; ++i) to[i] = simt::read_fresh(numbers + i);
    for (int i = 0; i < all; i += 4)
      *reinterpret_cast<float4*>(to + all + i) = simt::read_fresh4(numbers + i);
  }
};
// from: [32, 6] words, each lane's operands; to: [16, 8] f32, the product plus 1.
template <bool kBfloat>
struct Multiply {
  KV_DEVICE void operator()(uint32_t, const uint32_t* from, float* to) const {
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
};
struct Count {
  KV_DEVICE void operator()(uint32_t, unsigned* counter, unsigned* to) const {
    if (simt::thread() == 0) to[simt::block_x()] = simt::count_up(counter, 2);
  }
};

inline bool same_number(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

template <class Machine>
class Wrappers {
 public:
  explicit Wrappers(Machine& machine) : machine_(machine) {}

  struct Check {
    const char* name;
    bool (Wrappers::*passes)();
  };
  static constexpr auto checks() {
    return std::to_array<Check>({
        {"unpack_half2", &Wrappers::numbers_unpack<simt::unpack_half2, f16_to_f32>},
        {"pack_half2", &Wrappers::numbers_pack<simt::pack_half2, f32_to_f16>},
        {"unpack_bfloat2", &Wrappers::numbers_unpack<simt::unpack_bfloat2, bf16_to_f32>},
        {"pack_bfloat2", &Wrappers::numbers_pack<simt::pack_bfloat2, f32_to_bf16>},
        {"fma_half2", &Wrappers::halves_subtract},
        {"e4m3_to_half2", &Wrappers::fp8_unpacks},
        {"permute_bytes", &Wrappers::bytes_are_picked},
        {"exp2", &Wrappers::powers_are_close},
        {"shuffles", &Wrappers::lanes_shuffle},
        {"copy_async", &Wrappers::copies_land},
        {"load_matrices", &Wrappers::rows_load<false>},
        {"load_matrices transposed", &Wrappers::rows_load<true>},
        {"half tiles", &Wrappers::half_tiles_multiply},
        {"subnormal tiles", &Wrappers::subnormal_tiles_multiply},
        {"bfloat tiles", &Wrappers::bfloat_tiles_multiply},
        {"votes", &Wrappers::warps_vote},
        {"count_up", &Wrappers::counts_wrap},
        {"read_fresh", &Wrappers::reads_are_fresh},
    });
  }
  bool passes(const Check& check) { return (this->*check.passes)(); }

 private:
  // Runs kernel(in..., to) with a buffer `to` of n results and returns them.
  template <class T, class Kernel, class... In>
  std::vector<T> results(size_t n, Grid grid, Kernel kernel, In... in) {
    const DeviceBytes to(machine_.gpu(), n * sizeof(T));
    machine_.launch(grid, kernel, in..., to.template as<T>());
    std::vector<T> values(n);
    machine_.gpu().copy(values.data(), to.template as<T>(), n * sizeof(T));
    return values;
  }

  // Every word of two 16-bit numbers whose halves add up to 0xffff.
  template <float2 (*kUnpack)(uint32_t), float (*kWiden)(uint16_t)>
  bool numbers_unpack() {
    const auto got = results<float2>(65536, {256, 256}, Unpack<kUnpack>());
    bool ok = true;
    for (uint32_t i = 0; i < 65536; ++i) {
      ok &= same_number(got[i].x, kWiden(static_cast<uint16_t>(i)));
      ok &= same_number(got[i].y, kWiden(static_cast<uint16_t>(0xffffu - i)));
    }
    return ok;
  }

  template <uint32_t (*kPack)(float, float), uint16_t (*kNarrow)(float)>
  bool numbers_pack() {
    std::vector<float> from(8192);
    for (size_t i = 0; i < from.size(); ++i)
      from[i] = std::ldexp(normal_number(3, static_cast<int64_t>(i)), static_cast<int>(i % 44) - 28);
    const DeviceBytes in = upload(machine_.gpu(), from);
    const auto got = results<uint32_t>(4096, {16, 256}, Pack<kPack>(), in.as<float>());
    bool ok = true;
    for (size_t i = 0; i < got.size(); ++i)
      ok &= got[i] == (kNarrow(from[2 * i]) | static_cast<uint32_t>(kNarrow(from[2 * i + 1])) << 16);
    return ok;
  }

  bool halves_subtract() {
    const auto got = results<float2>(256, {1, 256}, SubtractHalves());
    bool ok = true;
    for (int i = 0; i < 256; ++i) {
      ok &= got[static_cast<size_t>(i)].x == static_cast<float>(i - 128);
      ok &= got[static_cast<size_t>(i)].y == static_cast<float>(127 - i);
    }
    return ok;
  }

  bool fp8_unpacks() {
    const auto got = results<float2>(256, {1, 256}, UnpackFp8());
    bool ok = true;
    for (size_t i = 0; i < 256; ++i) {
      ok &= same_number(got[i].x, fp8_to_f32<kE4M3>(static_cast<uint8_t>(i)));
      ok &= same_number(got[i].y, fp8_to_f32<kE4M3>(static_cast<uint8_t>(255 - i)));
    }
    return ok;
  }

  bool bytes_are_picked() {
    const auto got = results<uint32_t>(24, {1, 32}, PickBytes());
    bool ok = true;
    for (uint32_t i = 0; i < 8; ++i) {
      ok &= got[i] == (0x77552200u | 0x11u * i);
      ok &= got[8 + i] == ((0x01234567u * i & 0x00f000f0u) | 0x64006400u);
      ok &= got[16 + i] == ((0x3c00bc00u + i) ^ 0x80008000u);
    }
    return ok;
  }

  // ex2.approx errs by at most 2 ulp (PTX manual).
  bool powers_are_close() {
    std::vector<float> from(4096);
    for (size_t i = 0; i < from.size(); ++i) from[i] = -0.03f * static_cast<float>(i);
    from.back() = -std::numeric_limits<float>::infinity();
    const DeviceBytes in = upload(machine_.gpu(), from);
    const auto got = results<float>(from.size(), {16, 256}, Powers(), in.as<float>());
    bool ok = got.back() == 0.0f;
    for (size_t i = 0; i + 1 < got.size(); ++i) {
      const double want = std::exp2(static_cast<double>(from[i]));
      ok &= std::fabs(double{got[i]} - want) <= 2.4e-7 * want;
    }
    return ok;
  }

  bool lanes_shuffle() {
    const auto got = results<int>(64, {1, 32}, ShuffleLanes());
    bool ok = true;
    for (int i = 0; i < 32; ++i)
      ok &= got[static_cast<size_t>(i)] == 31 - i && got[static_cast<size_t>(32 + i)] == (i ^ 5);
    return ok;
  }

  bool copies_land() {
    std::vector<uint32_t> from(128);
    for (uint32_t i = 0; i < 128; ++i) from[i] = 0x01010101u * i + 7u;
    const DeviceBytes in = upload(machine_.gpu(), from);
    const auto got = results<uint32_t>(224, {1, 32, 896}, CopyWords(), in.as<std::byte>());
    bool ok = true;
    for (size_t i = 0; i < 224; ++i) {
      const size_t first = i < 128 ? 0 : i < 192 ? 128 : 192;
      ok &= got[i] == from[i - first];
    }
    return ok;
  }

  template <bool kTransposed>
  bool rows_load() {
    std::vector<uint16_t> half(32 * 8);
    for (size_t i = 0; i < half.size(); ++i) half[i] = static_cast<uint16_t>(257 * i + 3);
    const DeviceBytes in = upload(machine_.gpu(), half);
    const auto got = results<uint32_t>(128, {1, 32, 512}, LoadRows<kTransposed>(), in.as<std::byte>());
    bool ok = true;
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t g = i / 16, t = i / 4 % 4, matrix = i % 4 * 64;
      const size_t first = matrix + (kTransposed ? 2 * t * 8 + g : g * 8 + 2 * t);
      ok &= got[i] == (half[first] | uint32_t{half[first + (kTransposed ? 8 : 1)]} << 16);
    }
    return ok;
  }

  // Two warps: the largest number is the first lane's and has its top bit set; only one lane of the first warp has a 7.
  bool warps_vote() {
    std::vector<uint32_t> from(64);
    for (uint32_t i = 0; i < 64; ++i) from[i] = 100 + i;
    from[0] = from[32] = 0x80000001u;
    from[31] = 7;
    const DeviceBytes in = upload(machine_.gpu(), from);
    const auto got = results<uint2>(64, {1, 64}, Vote(), in.as<uint32_t>());
    bool ok = true;
    for (size_t i = 0; i < 64; ++i) ok &= got[i].x == 0x80000001u && got[i].y == (i < 32 ? 1u : 0u);
    return ok;
  }

  bool reads_are_fresh() {
    constexpr size_t kBlocks = 256;
    const DeviceBytes counter = upload(machine_.gpu(), std::vector<unsigned>{0});
    const DeviceBytes numbers = upload(machine_.gpu(), std::vector<float>(kBlocks));
    const auto got =
        results<float>(2 * kBlocks, {kBlocks, 32}, ReadAgain(), counter.as<unsigned>(), numbers.as<float>());
    bool ok = true;
    for (size_t i = 0; i < got.size(); ++i) ok &= got[i] == static_cast<float>(i % kBlocks + 1);
    return ok;
  }

  bool counts_wrap() {
    const DeviceBytes counter = upload(machine_.gpu(), std::vector<unsigned>{0});
    auto got = results<unsigned>(6, {6, 32}, Count(), counter.as<unsigned>());
    std::sort(got.begin(), got.end());
    return got == std::vector<unsigned>{0, 0, 1, 1, 2, 2};
  }

  // All sums are exact; a and b are whole numbers times these.
  template <class Kernel>
  bool tiles_multiply(Kernel kernel, uint16_t (*narrow)(float), float of_a = 1.0f, float of_b = 1.0f) {
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
      for (size_t i = 0; i < 2; ++i)
        from.push_back(pair(b[(2 * t + 8 * i) * 8 + g], b[(2 * t + 8 * i + 1) * 8 + g]));
    }
    const DeviceBytes in = upload(machine_.gpu(), from);
    const auto got = results<float>(128, {1, 32}, kernel, in.as<uint32_t>());
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
  bool half_tiles_multiply() { return tiles_multiply(Multiply<false>(), f32_to_f16); }
  // Codes of K are read as subnormal numbers (kernels/cuda/attention/words.h).
  bool subnormal_tiles_multiply() { return tiles_multiply(Multiply<false>(), f32_to_f16, 0x1p11f, 0x1p-24f); }
  bool bfloat_tiles_multiply() { return tiles_multiply(Multiply<true>(), f32_to_bf16); }

  Machine& machine_;
};

}  // namespace kv::gpu_check
