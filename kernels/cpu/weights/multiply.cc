// Four rows of weights are widened in registers and multiplied by up to four vectors; what follows is prefetched. Each
// output is one chain of vector sums, so it does not depend on which others are formed beside it.
#include "kernels/cpu/weights/multiply.h"

#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/targets.h"
#include "kernels/math.h"

#ifndef KV_MULTIPLY_SCALAR  // this file is compiled once a target
#define KV_MULTIPLY_SCALAR
namespace kv::cpu {

inline constexpr int64_t kPrefetchBytes = 4096;  // ahead of the read

template <WeightType kType>
inline constexpr int64_t kWeightBytes = kType == WeightType::kF32 ? 4 : 2;

// The weight at any address.
template <WeightType kType>
float weight_at(const std::byte* from) {
  if constexpr (kType == WeightType::kF32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  } else {
    uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    return kType == WeightType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

template <WeightType kType>
static void scalar_multiply(const std::byte* weights, int64_t rows, int64_t cols, const float* x, int64_t n,
                            float* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* row = weights + r * cols * kWeightBytes<kType>;
    for (int64_t t = 0; t < n; ++t) {
      float sum = 0.0f;
      for (int64_t c = 0; c < cols; ++c)
        sum += weight_at<kType>(row + c * kWeightBytes<kType>) * x[t * cols + c];
      y[t * y_stride + r] = sum;
    }
  }
}

static auto* scalar_multiply(WeightType type) {
  return type == WeightType::kF32   ? scalar_multiply<WeightType::kF32>
         : type == WeightType::kF16 ? scalar_multiply<WeightType::kF16>
                                    : scalar_multiply<WeightType::kBf16>;
}

}  // namespace kv::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/weights/multiply.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

using F32 = hn::ScalableTag<float>;

template <WeightType kType>
HWY_INLINE hn::Vec<F32> load_weights(F32 d, const std::byte* from) {
  if constexpr (kType == WeightType::kF32) {
    return hn::LoadU(d, reinterpret_cast<const float*>(from));
  } else {
    const hn::Rebind<uint16_t, F32> d16;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
    if constexpr (kType == WeightType::kF16) return widen_half(d, bits);
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::Rebind<uint32_t, F32>(), bits)));
  }
}

// kRows rows with kN vectors: a sum of vectors for each pair.
template <WeightType kType, int kRows, int kN>
HWY_INLINE void multiply_block(const std::byte* weights, int64_t cols, const float* x, float* y,
                               int64_t y_stride) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kBytes = kWeightBytes<kType>;
  const int64_t row_bytes = cols * kBytes;
  hn::Vec<F32> sums[kRows][kN];
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int t = 0; t < kN; ++t) sums[r][t] = hn::Zero(d);
  }
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    hn::Vec<F32> w[kRows];
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      const std::byte* from = weights + r * row_bytes + c * kBytes;
      __builtin_prefetch(from + kPrefetchBytes);
      w[r] = load_weights<kType>(d, from);
    }
    HWY_UNROLL(4)
    for (int t = 0; t < kN; ++t) {
      const auto v = hn::LoadU(d, x + t * cols + c);
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) sums[r][t] = hn::MulAdd(w[r], v, sums[r][t]);
    }
  }
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int t = 0; t < kN; ++t) {
      float sum = hn::GetLane(hn::SumOfLanes(d, sums[r][t]));
      for (int64_t i = c; i < cols; ++i)
        sum += weight_at<kType>(weights + r * row_bytes + i * kBytes) * x[t * cols + i];
      y[t * y_stride + r] = sum;
    }
  }
}

template <WeightType kType, int kN>
void multiply_rows(const std::byte* weights, int64_t rows, int64_t cols, const float* x, float* y,
                   int64_t y_stride) {
  constexpr int kRows = 4;  // with four vectors, sixteen sums: what stays in registers beside their factors
  const int64_t row_bytes = cols * kWeightBytes<kType>;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    multiply_block<kType, kRows, kN>(weights + r * row_bytes, cols, x, y + r, y_stride);
  for (; r < rows; ++r) multiply_block<kType, 1, kN>(weights + r * row_bytes, cols, x, y + r, y_stride);
}

template <WeightType kType>
void multiply(const std::byte* weights, int64_t rows, int64_t cols, const float* x, int64_t n, float* y,
              int64_t y_stride) {
  const auto next = [&](auto count) KV_ATTR {
    constexpr int kN = decltype(count)::value;
    for (; n >= kN; n -= kN, x += kN * cols, y += kN * y_stride)
      multiply_rows<kType, kN>(weights, rows, cols, x, y, y_stride);
  };
  next(std::integral_constant<int, 4>());
  next(std::integral_constant<int, 2>());
  next(std::integral_constant<int, 1>());
}

void multiply_f32(const std::byte* weights, int64_t rows, int64_t cols, const float* x, int64_t n, float* y,
                  int64_t y_stride) {
  multiply<WeightType::kF32>(weights, rows, cols, x, n, y, y_stride);
}
void multiply_f16(const std::byte* weights, int64_t rows, int64_t cols, const float* x, int64_t n, float* y,
                  int64_t y_stride) {
  multiply<WeightType::kF16>(weights, rows, cols, x, n, y, y_stride);
}
void multiply_bf16(const std::byte* weights, int64_t rows, int64_t cols, const float* x, int64_t n, float* y,
                   int64_t y_stride) {
  multiply<WeightType::kBf16>(weights, rows, cols, x, n, y, y_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f16);
HWY_EXPORT(multiply_bf16);

void multiply_weights(const std::byte* weights, WeightType type, int64_t rows, int64_t cols, const float* x,
                      int64_t n, float* y, int64_t y_stride) {
  if (isa_is_scalar()) return scalar_multiply(type)(weights, rows, cols, x, n, y, y_stride);
  switch (type) {
    case WeightType::kF32:
      return HWY_DYNAMIC_DISPATCH(multiply_f32)(weights, rows, cols, x, n, y, y_stride);
    case WeightType::kF16:
      return HWY_DYNAMIC_DISPATCH(multiply_f16)(weights, rows, cols, x, n, y, y_stride);
    case WeightType::kBf16:
      return HWY_DYNAMIC_DISPATCH(multiply_bf16)(weights, rows, cols, x, n, y, y_stride);
    default:
      throw std::logic_error("multiply_weights: blocks are expanded first");
  }
}

}  // namespace kv::cpu
#endif
