// Rows of floats, fp8 and kToken on the vector units. Private to kernels/cpu; compiled once a target.
#if defined(KV_ENCODE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_ENCODE_ROWS_INL_H_
#undef KV_ENCODE_ROWS_INL_H_
#else
#define KV_ENCODE_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/encode/encode_lanes-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- floats ----

template <class D, class N>
HWY_INLINE void encode_float_row(F32Format, D, N n, const UnitJob& job) {
  std::memcpy(job.data, job.rows, sizeof(float) * static_cast<size_t>(n));
}

template <class D, class N>
HWY_INLINE void encode_float_row(F16Format, D d, N n, const UnitJob& job) {
  for (int i = 0; i < n; i += lanes_of(d)) {
    const auto x = hn::LoadU(d, job.rows + i);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    const hn::Rebind<hwy::float16_t, D> d16;  // this hardware rounds to nearest even
    hn::StoreU(hn::DemoteTo(d16, x), d16, reinterpret_cast<hwy::float16_t*>(job.data) + i);
#else
    const hn::Rebind<uint16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, half_bits(d, x)), d16, reinterpret_cast<uint16_t*>(job.data) + i);
#endif
  }
}

template <class D, class N>
HWY_INLINE void encode_float_row(Bf16Format, D d, N n, const UnitJob& job) {
  const hn::Rebind<uint16_t, D> d16;
  for (int i = 0; i < n; i += lanes_of(d)) {
    const auto h = hn::DemoteTo(d16, bf16_bits(d, hn::LoadU(d, job.rows + i)));
    hn::StoreU(h, d16, reinterpret_cast<uint16_t*>(job.data) + i);
  }
}

// ---- fp8 ----

// f32_to_fp8 of numbers in range, plus kExcess. A number is rounded by adding a power of two whose last place
// is the step of its code: that of its exponent, or of the smallest normal one where it is below that.
template <Fp8 F>
struct Fp8Codes {
  static constexpr int kShift = 23 - F.mantissa_bits;
  static constexpr int32_t kSmallestNormal = (127 + 1 - F.bias) << 23;
  static constexpr uint32_t kExcess = (127 - F.bias + 1) << F.mantissa_bits;
  const float* row;
  float inverse_scale;
  template <class D>
  HWY_INLINE hn::Vec<Bits<D>> operator()(D d, int i) const {
    const Bits<D> di;
    const auto x = hn::Mul(hn::LoadU(d, row + i), hn::Set(d, inverse_scale));
    const auto bits = hn::BitCast(di, x);
    const auto exponent = hn::Max(hn::And(bits, hn::Set(di, 0x7f800000)), hn::Set(di, kSmallestNormal));
    const auto power = hn::Add(exponent, hn::Set(di, kShift << 23));
    const auto sum = hn::BitCast(di, hn::Add(hn::Abs(x), hn::BitCast(d, power)));
    const auto code = hn::Add(hn::Sub(sum, power), hn::ShiftRight<kShift>(exponent));
    return hn::Add(code, hn::And(hn::ShiftRight<24>(bits), hn::Set(di, 0x80)));
  }
};

// With fewer than four jobs the last one is repeated.
struct FourRows {
  const float* at[kFour];
  explicit FourRows(const RowJobs& jobs) {
    for (size_t i = 0; i < kFour; ++i) at[i] = jobs[std::min(i, jobs.size() - 1)].rows;
  }
};

template <Fp8 F, class D, class N>
HWY_INLINE bool encode_fp8_rows(Fp8Format<F>, D d, N n, const RowJobs& jobs) {
  const Bits<Four> four;
  const auto largest = largest_of_four(d, n, FourRows(jobs).at);
  if (!hn::AllFalse(four, hn::Gt(largest, hn::Set(four, int32_t{kLargestFp8Row})))) return false;
  HWY_ALIGN int32_t largest_bits[kFour];
  hn::Store(largest, four, largest_bits);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const UnitJob& job = jobs.take(i);
    const float scale = fp8_row_scale<F>(static_cast<uint32_t>(largest_bits[i]));
    store_bytes(d, n, Fp8Codes<F>{job.rows, 1.0f / scale}, Fp8Codes<F>::kExcess, job.data);
    store(job.meta, 0, scale);
  }
  return true;
}

// ---- kToken ----

// A row at a time, unlike fp8: four rows of 256 took up to twice as long from memory.

struct SymmetricSums {
  const float* row;
  float inverse_scale;
  template <class D>
  HWY_INLINE hn::Vec<Bits<D>> operator()(D d, int i) const {
    const auto code = hn::Mul(hn::LoadU(d, row + i), hn::Set(d, inverse_scale));
    return hn::BitCast(Bits<D>(), hn::Add(code, hn::Set(d, kAlign)));
  }
};

template <class D, class N>
HWY_INLINE bool encode_symmetric_row(D d, int bits, N n, const UnitJob& job) {
  const Bits<D> di;
  const auto largest = hn::GetLane(hn::MaxOfLanes(di, largest_lanes(d, n, job.rows)));
  if (largest > std::bit_cast<int32_t>(kLimitF32)) return false;
  const float scale = symmetric_scale(static_cast<uint32_t>(largest), bits);
  pack_row(d, bits, n, SymmetricSums{job.rows, inverse(scale)}, 1u << (bits - 1), job.data);
  store(job.meta, 0, scale);
  return true;
}

struct AffineSums {
  const float* row;
  float zero, inverse_scale;
  template <class D>
  HWY_INLINE hn::Vec<Bits<D>> operator()(D d, int i) const {
    const auto code = hn::Mul(hn::Sub(hn::LoadU(d, row + i), hn::Set(d, zero)), hn::Set(d, inverse_scale));
    return hn::BitCast(Bits<D>(), hn::Add(code, hn::Set(d, kAlign)));
  }
};

template <class D, class N>
HWY_INLINE bool encode_affine_row(D d, int bits, N n, const UnitJob& job) {
  const auto lanes = extreme_lanes(d, n, job.rows);
  const float low = hn::GetLane(hn::MinOfLanes(d, lanes.low));
  const float high = hn::GetLane(hn::MaxOfLanes(d, lanes.high));
  if (!all_finite(d, lanes.probe) || low < -kLimitF32 || high > kLimitF32) return false;
  const Grid grid = grid_f32(low, high, top_code(bits));
  pack_row(d, bits, n, AffineSums{job.rows, grid.zero, inverse(grid.scale)}, 0, job.data);
  store(job.meta, 0, grid.scale);
  store(job.meta, 1, grid.zero);
  return true;
}

template <class D, class N>
HWY_INLINE bool encode_token_row(D d, const Encoding& e, N n, const UnitJob& job) {
  return e.affine ? encode_affine_row(d, e.bits, n, job) : encode_symmetric_row(d, e.bits, n, job);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
