// A tile of outputs is some rows of weights times two panels of vectors: as many sums as stay in registers beside their factors,
// and enough to hide the latency of two chains a cycle.
#include "kernels/cpu/weights/product.h"

#include <algorithm>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/targets.h"

#ifndef KV_PRODUCT_SCALAR  // this file is compiled once a target
#define KV_PRODUCT_SCALAR
namespace kv::cpu {

// Vectors first … first + lanes of x [n, cols], of which those from n on are the last one again.
struct Panel {
  const float* x;
  int64_t n, cols, first;
  const float* vector(int64_t t) const { return x + std::min(first + t, n - 1) * cols; }
};

inline constexpr int64_t kScalarLanes = 8;

inline void scalar_pack(const Panel& panel, float* to) {
  for (int64_t c = 0; c < panel.cols; ++c) {
    for (int64_t t = 0; t < kScalarLanes; ++t) *to++ = panel.vector(t)[c];
  }
}

inline void scalar_multiply(const float* weights, int64_t rows, int64_t cols, const float* packed, int64_t n,
                            float* y, int64_t y_stride) {
  for (int64_t first = 0; first < n; first += kScalarLanes, packed += cols * kScalarLanes) {
    for (int64_t r = 0; r < rows; ++r) {
      float sums[kScalarLanes] = {};
      for (int64_t c = 0; c < cols; ++c) {
        for (int64_t t = 0; t < kScalarLanes; ++t)
          sums[t] += weights[r * cols + c] * packed[c * kScalarLanes + t];
      }
      for (int64_t t = 0; t < std::min(kScalarLanes, n - first); ++t) y[(first + t) * y_stride + r] = sums[t];
    }
  }
}

}  // namespace kv::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/weights/product.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/unroll-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;

#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kTileRows = 12;  // of 32 registers
#else
constexpr int kTileRows = 6;  // of 16
#endif

int64_t lanes() { return static_cast<int64_t>(hn::Lanes(F32())); }

#if HWY_TARGET != HWY_SCALAR
// Four vectors' next four values, transposed.
HWY_INLINE void pack_four(const Panel& panel, int64_t t, int64_t c, float* to) {
  const hn::FixedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> pairs;
  const auto load = [&](int64_t i) KV_INLINE { return hn::LoadU(d, panel.vector(t + i) + c); };
  const auto a = load(0), b = load(1), e = load(2), f = load(3);
  const auto ab = hn::BitCast(pairs, hn::InterleaveLower(d, a, b)),
             ef = hn::BitCast(pairs, hn::InterleaveLower(d, e, f)),
             ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b)),
             ef_high = hn::BitCast(pairs, hn::InterleaveUpper(d, e, f));
  const auto store = [&](int64_t i, auto v) KV_INLINE { hn::StoreU(hn::BitCast(d, v), d, to + i * lanes()); };
  store(0, hn::InterleaveLower(pairs, ab, ef));
  store(1, hn::InterleaveUpper(pairs, ab, ef));
  store(2, hn::InterleaveLower(pairs, ab_high, ef_high));
  store(3, hn::InterleaveUpper(pairs, ab_high, ef_high));
}
#endif

void pack_panel(const Panel& panel, float* to) {
  int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; c + 4 <= panel.cols; c += 4) {
    for (int64_t t = 0; t < lanes(); t += 4) pack_four(panel, t, c, to + c * lanes() + t);
  }
#endif
  for (; c < panel.cols; ++c) {
    for (int64_t t = 0; t < lanes(); ++t) to[c * lanes() + t] = panel.vector(t)[c];
  }
}

// The first `count` vectors of kPanels panels.
template <int kRows, int kPanels>
HWY_INLINE void multiply_tile(const float* weights, int64_t cols, const float* packed, int64_t count,
                              float* y, int64_t y_stride) {
  const F32 d;
  const int64_t width = lanes(), panel = cols * width;
  hn::Vec<F32> sums[kRows][kPanels];
  unroll<kRows>([&](auto r)
                    KV_INLINE { unroll<kPanels>([&](auto p) KV_INLINE { sums[r][p] = hn::Zero(d); }); });
  for (int64_t c = 0; c < cols; ++c) {
    hn::Vec<F32> x[kPanels];
    unroll<kPanels>([&](auto p) KV_INLINE { x[p] = hn::LoadU(d, packed + p * panel + c * width); });
    unroll<kRows>([&](auto r) KV_INLINE {
      const auto w = hn::Set(d, weights[r * cols + c]);
      unroll<kPanels>([&](auto p) KV_INLINE { sums[r][p] = hn::MulAdd(w, x[p], sums[r][p]); });
    });
  }
  HWY_ALIGN float out[kRows * kPanels * hn::MaxLanes(F32())];
  unroll<kRows>([&](auto r) KV_INLINE {
    unroll<kPanels>([&](auto p) KV_INLINE { hn::StoreU(sums[r][p], d, out + (r * kPanels + p) * width); });
  });
  for (int64_t t = 0; t < count; ++t, y += y_stride) {
    for (int r = 0; r < kRows; ++r) y[r] = out[r * kPanels * width + t];
  }
}

// The last tile begins early enough to be whole, and forms sums of the one before again.
template <int kPanels>
void multiply_panels(const float* weights, int64_t rows, int64_t cols, const float* packed, int64_t count,
                     float* y, int64_t y_stride) {
  if (rows < kTileRows) {
    for (int64_t r = 0; r < rows; ++r)
      multiply_tile<1, kPanels>(weights + r * cols, cols, packed, count, y + r, y_stride);
    return;
  }
  for (int64_t r = 0; r < rows; r += kTileRows) {
    const int64_t first = std::min(r, rows - kTileRows);
    multiply_tile<kTileRows, kPanels>(weights + first * cols, cols, packed, count, y + first, y_stride);
  }
}

void multiply_lanes(const float* weights, int64_t rows, int64_t cols, const float* packed, int64_t n,
                    float* y, int64_t y_stride) {
  const int64_t width = lanes();
  int64_t t = 0;
  for (; n - t > width; t += 2 * width)
    multiply_panels<2>(weights, rows, cols, packed + t * cols, std::min(n - t, 2 * width), y + t * y_stride,
                       y_stride);
  if (t < n) multiply_panels<1>(weights, rows, cols, packed + t * cols, n - t, y + t * y_stride, y_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(lanes);
HWY_EXPORT(pack_panel);
HWY_EXPORT(multiply_lanes);

namespace {
int64_t lanes_in_use() { return isa_is_scalar() ? kScalarLanes : HWY_DYNAMIC_DISPATCH(lanes)(); }
}  // namespace

int64_t packed_size(int64_t n, int64_t cols) {
  const int64_t width = lanes_in_use();
  return (n + width - 1) / width * width * cols;
}

void pack_vectors(const float* x, int64_t n, int64_t cols, float* packed) {
  const int64_t width = lanes_in_use();
  const auto pack = isa_is_scalar() ? scalar_pack : HWY_DYNAMIC_DISPATCH(pack_panel);
#pragma omp parallel for if (n * cols > 1 << 16)
  for (int64_t first = 0; first < n; first += width) pack({x, n, cols, first}, packed + first * cols);
}

void multiply_packed(const float* weights, int64_t rows, int64_t cols, const float* packed, int64_t n,
                     float* y, int64_t y_stride) {
  const auto multiply = isa_is_scalar() ? scalar_multiply : HWY_DYNAMIC_DISPATCH(multiply_lanes);
  multiply(weights, rows, cols, packed, n, y, y_stride);
}

}  // namespace kv::cpu
#endif
