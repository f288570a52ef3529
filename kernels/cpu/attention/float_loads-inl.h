// Rows of floats in vector registers: f32, f16, bf16, fp8. Elements are widened in registers; FP8's row scale is left
// out of them and goes into the score, or into the weight.
//
// Elements of less than 32 bits are loaded interleaved: a vector of 32-bit words of a row becomes several vectors of
// f32, the first with the elements that stand lowest in each word, and so on. For bf16:
//
//   words of the row   x1 x0 | x3 x2 | x5 x4 | …
//   vector 0              x0 |    x2 |    x4 | …      a shift
//   vector 1           x1    | x3    | x5    | …      a mask
//
// That takes shifts and masks alone, since no element changes its lane, but leaves a row's elements in an order of
// its own. Queries are brought into that order before, and sums out of it afterwards, once a task each.
//
// Private to kernels/cpu; compiled once a target.
#if defined(KV_FLOAT_LOADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_FLOAT_LOADS_INL_H_
#undef KV_FLOAT_LOADS_INL_H_
#else
#define KV_FLOAT_LOADS_INL_H_
#endif

#include <type_traits>

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/format/list.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Each makes of a row's elements of kBytes from i on, i a multiple of kVectors * lanes, kVectors vectors of f32.
// Vector p's lane l is element i + l * kVectors + p, divided by kFactor.

struct LoadF32 {
  static constexpr int kVectors = 1;
  static constexpr int kBytes = 4;
  static constexpr float kFactor = 1.0f;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    out[0] = hn::LoadU(d, reinterpret_cast<const float*>(row) + i);
  }
};

// The hardware's conversion is no slower than shifts and masks would be, and knows infinity and NaN.
struct LoadF16 {
  static constexpr int kVectors = 1;
  static constexpr int kBytes = 2;
  static constexpr float kFactor = 1.0f;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    const hn::Rebind<uint16_t, D> d16;
    out[0] = widen_half(d, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(row) + i));
  }
};

struct LoadBf16 {
  static constexpr int kVectors = 1;
  static constexpr int kBytes = 2;
  static constexpr float kFactor = 1.0f;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    const hn::Rebind<hwy::bfloat16_t, D> d16;
    out[0] = hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(row) + i));
  }
};
struct InterleavedBf16 {
  static constexpr int kVectors = 2;
  static constexpr int kBytes = 2;
  static constexpr float kFactor = 1.0f;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    const hn::RebindToSigned<D> di;
    const auto words = hn::LoadU(di, reinterpret_cast<const int32_t*>(row + 2 * i));
    out[0] = hn::BitCast(d, hn::ShiftLeft<16>(words));
    out[1] = hn::BitCast(d, hn::And(words, hn::Set(di, static_cast<int32_t>(0xffff0000u))));
  }
};

// FP8's sign, exponent and mantissa in the places of f32's are the number divided by 2^120, or by 2^112 for E5M2:
// the difference of the exponents' biases. That holds for subnormals too, which become f32's.
template <Fp8 F>
struct Fp8InF32 {
  static constexpr float kFactor = F.mantissa_bits == 3 ? 0x1p120f : 0x1p112f;
  static constexpr int32_t kMask = static_cast<int32_t>(0x80000000u | 0x7fu << (23 - F.mantissa_bits));
};
template <Fp8 F>
struct LoadFp8 {
  static constexpr int kVectors = 1;
  static constexpr int kBytes = 1;
  static constexpr float kFactor = Fp8InF32<F>::kFactor;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<int8_t, D> d8;
    const auto codes = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const int8_t*>(row) + i));
    const auto placed = hn::ShiftLeft<23 - F.mantissa_bits>(codes);
    out[0] = hn::BitCast(d, hn::And(placed, hn::Set(di, Fp8InF32<F>::kMask)));
  }
};
template <Fp8 F>
struct InterleavedFp8 {
  static constexpr int kVectors = 4;
  static constexpr int kBytes = 1;
  static constexpr float kFactor = Fp8InF32<F>::kFactor;
  template <class D>
  HWY_INLINE void operator()(D d, const std::byte* row, int i, hn::Vec<D>* out) const {
    const hn::RebindToSigned<D> di;
    const hn::Repartition<int16_t, D> d16;
    constexpr int kShift = 1 + F.mantissa_bits;
    const auto mask = hn::Set(di, Fp8InF32<F>::kMask);
    const auto codes = hn::LoadU(d16, reinterpret_cast<const int16_t*>(row + i));
    const auto even = hn::BitCast(di, hn::ShiftRight<kShift>(hn::ShiftLeft<8>(codes)));
    const auto odd = hn::BitCast(di, hn::ShiftRight<kShift>(codes));
    out[0] = hn::BitCast(d, hn::And(hn::ShiftLeft<16>(even), mask));
    out[1] = hn::BitCast(d, hn::And(hn::ShiftLeft<16>(odd), mask));
    out[2] = hn::BitCast(d, hn::And(even, mask));
    out[3] = hn::BitCast(d, hn::And(odd, mask));
  }
};

// A float format's loads: InOrder takes rows of any length, Interleaved those of a multiple of its vectors.
template <class F>
struct LoadsOf;
template <>
struct LoadsOf<F32Format> {
  using InOrder = LoadF32;
  using Interleaved = LoadF32;
};
template <>
struct LoadsOf<F16Format> {
  using InOrder = LoadF16;
  using Interleaved = LoadF16;
};
template <>
struct LoadsOf<Bf16Format> {
  using InOrder = LoadBf16;
  using Interleaved = InterleavedBf16;
};
template <Fp8 F>
struct LoadsOf<Fp8Format<F>> {
  using InOrder = LoadFp8<F>;
  using Interleaved = InterleavedFp8<F>;
};

// Calls call(d, load) with vectors that divide a row, and the load of rows in this float format.
template <class Call>
HWY_INLINE void with_load(Format format, int head_dim, const Call& call) {
  const auto with_vectors = [&](auto d) KV_ATTR {
    const int vectors = head_dim / static_cast<int>(hn::Lanes(d));
    visit_format(format, [&](auto f) KV_ATTR {
      using F = decltype(f);
      if constexpr (F::kElements == Elements::kFloats) {
        using Loads = LoadsOf<F>;
        if constexpr (!std::is_same_v<typename Loads::InOrder, typename Loads::Interleaved>) {
          if (vectors % Loads::Interleaved::kVectors != 0) return call(d, typename Loads::InOrder());
        }
        call(d, typename Loads::Interleaved());
      }
    });
  };
  const hn::ScalableTag<float> full;
  if (head_dim % static_cast<int>(hn::Lanes(full)) == 0) return with_vectors(full);
  // SSE4's and NEON's vectors divide every row.
  if constexpr (hn::MaxLanes(full) > 8) with_vectors(hn::CappedTag<float, 8>());
}

template <int kVectors, class D>
HWY_INLINE void load_interleaved(D d, const float* x, hn::Vec<D>* out) {
  if constexpr (kVectors == 1) out[0] = hn::LoadU(d, x);
  if constexpr (kVectors == 2) hn::LoadInterleaved2(d, x, out[0], out[1]);
  if constexpr (kVectors == 4) hn::LoadInterleaved4(d, x, out[0], out[1], out[2], out[3]);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
