// Shared by the benchmarks of kernels: codecs by name, rows of noise in cold memory, and a clock.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/encode.h"
#include "kernels/format/encoding.h"

namespace kv::bench {

struct Codec {
  const char* name;
  Encoding k, v;
};

constexpr Encoding token(int bits, bool affine) {
  return {Format::kToken, static_cast<uint8_t>(bits), 1, affine};
}
constexpr Encoding channel(int bits) { return {Format::kChannel, static_cast<uint8_t>(bits), 32, true}; }
constexpr Encoding simple(Format format, int bits) { return {format, static_cast<uint8_t>(bits), 1, false}; }

inline const Codec kCodecs[] = {
    {"f32", simple(Format::kF32, 32), simple(Format::kF32, 32)},
    {"f16", simple(Format::kF16, 16), simple(Format::kF16, 16)},
    {"bf16", simple(Format::kBf16, 16), simple(Format::kBf16, 16)},
    {"fp8", simple(Format::kFp8E4M3, 8), simple(Format::kFp8E4M3, 8)},
    {"q8_0", simple(Format::kQ8_0, 8), simple(Format::kQ8_0, 8)},
    {"q4_0", simple(Format::kQ4_0, 4), simple(Format::kQ4_0, 4)},
    {"q4_1", simple(Format::kQ4_1, 4), simple(Format::kQ4_1, 4)},
    {"q5_0", simple(Format::kQ5_0, 5), simple(Format::kQ5_0, 5)},
    {"q5_1", simple(Format::kQ5_1, 5), simple(Format::kQ5_1, 5)},
    {"iq4_nl", simple(Format::kIq4Nl, 4), simple(Format::kIq4Nl, 4)},
    {"q6_0", simple(Format::kQ6_0, 6), simple(Format::kQ6_0, 6)},
    {"token8", token(8, false), token(8, false)},
    {"token4", token(4, false), token(4, false)},
    {"kivi8", channel(8), token(8, true)},
    {"kivi4", channel(4), token(4, true)},
    {"kivi2", channel(2), token(2, true)},
    {"mxfp8", simple(Format::kMxFp8E4M3, 8), simple(Format::kMxFp8E4M3, 8)},
    {"mxfp4", simple(Format::kMxFp4, 4), simple(Format::kMxFp4, 4)},
    {"nvfp4", simple(Format::kNvFp4, 4), simple(Format::kNvFp4, 4)},
    {"turbo4", simple(Format::kTurbo, 4), simple(Format::kTurbo, 4)},
    {"turbo3", simple(Format::kTurbo, 3), simple(Format::kTurbo, 3)},
};

struct Shape {
  int q_heads, kv_heads, head_dim;
  int64_t rows;
};

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

// In huge pages, as the harness holds caches.
inline Buffer allocate(int64_t bytes) {
  constexpr int64_t kHugePage = 2 << 20;
  const size_t rounded = static_cast<size_t>((bytes + kHugePage) / kHugePage * kHugePage);
  auto* p = static_cast<std::byte*>(std::aligned_alloc(kHugePage, rounded));
  madvise(p, rounded, MADV_HUGEPAGE);
  return Buffer(p);
}

// K or V of all heads of one replica: [heads, units] codes, and scales behind them.
struct Plane {
  Encoding encoding;
  int64_t units, data_bytes, meta_bytes;
  Plane(const Encoding& e, const Shape& s)
      : encoding(e),
        units((s.rows + e.group - 1) / e.group),
        data_bytes(unit_data_bytes(e, s.head_dim)),
        meta_bytes(unit_meta_bytes(e, s.head_dim)) {}
  int64_t bytes(int heads) const { return (heads * units * (data_bytes + meta_bytes) + 4095) / 4096 * 4096; }
  Side side(const std::byte* base, int heads, int head) const {
    const std::byte* meta = base + heads * units * data_bytes;
    return {.data = base + head * units * data_bytes,
            .meta = meta_bytes ? meta + head * units * meta_bytes : nullptr,
            .stride = data_bytes,
            .meta_stride = meta_bytes,
            .encoding = encoding};
  }
  // Encoded noise, a unit drawn from a few.
  void fill(std::byte* base, const Shape& s, std::mt19937& rng) const {
    constexpr int kPool = 64;
    std::normal_distribution<float> normal;
    std::vector<float> rows(static_cast<size_t>(encoding.group * s.head_dim));
    std::vector<std::byte> data(static_cast<size_t>(kPool * data_bytes)),
        meta(static_cast<size_t>(kPool * meta_bytes + 1));
    for (int i = 0; i < kPool; ++i) {
      for (float& x : rows) x = normal(rng);
      encode_unit(encoding, s.head_dim, rows.data(), data.data() + i * data_bytes,
                  meta.data() + i * meta_bytes);
    }
    std::byte* metas = base + s.kv_heads * units * data_bytes;
    for (int64_t u = 0; u < s.kv_heads * units; ++u) {
      const int64_t pick = static_cast<int64_t>(rng() % kPool);
      std::copy_n(data.data() + pick * data_bytes, data_bytes, base + u * data_bytes);
      std::copy_n(meta.data() + pick * meta_bytes, meta_bytes, metas + u * meta_bytes);
    }
  }
};

inline double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + std::ssize(x) / 2, x.end());
  return x[x.size() / 2];
}

}  // namespace kv::bench
