// Shared by scores and values of interleaved codes (bits.h). Vectors are full at any row length: short rows
// share one. Private to kernels/cpu; compiled once a target.
#if defined(KV_INTERLEAVED_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_INTERLEAVED_CODES_INL_H_
#undef KV_INTERLEAVED_CODES_INL_H_
#else
#define KV_INTERLEAVED_CODES_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attention/codes-inl.h"
#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/format/bytes.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls with the width of codes as a constant.
template <class Call>
HWY_INLINE void with_bits(int bits, const Call& call) {
  if (bits == 8) return call(std::integral_constant<int, 8>());
  if (bits == 4) return call(std::integral_constant<int, 4>());
  call(std::integral_constant<int, 2>());
}

// ---- sums and maxima of several vectors ----

// The sums of each of kCount vectors.
template <int kCount, class DF>
HWY_INLINE void sums_of_lanes(DF df, const hn::Vec<DF> (&x)[kCount], float* sums) {
  if constexpr (kCount == 4) {
    hn::StoreU(sums_of_four(df, x[0], x[1], x[2], x[3]), hn::CappedTag<float, 4>(), sums);
  } else {
    for (int i = 0; i < kCount; ++i) sums[i] = hn::GetLane(hn::SumOfLanes(df, x[i]));
  }
}

// The largest lane of each of kCount vectors.
template <int kCount, class DF>
HWY_INLINE void largest_of_lanes(DF df, const hn::Vec<DF> (&x)[kCount], float* largest) {
  if constexpr (kCount == 4) {
    hn::StoreU(across_lanes(df, x[0], x[1], x[2], x[3], MaxOf()), hn::CappedTag<float, 4>(), largest);
  } else {
    for (int i = 0; i < kCount; ++i) largest[i] = hn::GetLane(hn::MaxOfLanes(df, x[i]));
  }
}

// kRows vectors of sums, each over several rows or parts of a row in blocks of 128 bits or more -> their sums, one
// vector: blocks of the first vector, then of the second, …
template <int kRows, class DI>
HWY_INLINE hn::Vec<DI> join_sums(DI di, const hn::Vec<DI>* acc) {
  if constexpr (kRows == 1) {
    return acc[0];
  } else {
    const auto halves = [&](int a, int b) KV_INLINE {
      return hn::Add(hn::ConcatLowerLower(di, acc[b], acc[a]), hn::ConcatUpperUpper(di, acc[b], acc[a]));
    };
    if constexpr (kRows == 2) {
      return halves(0, 1);
    } else {
      const auto x = halves(0, 2), y = halves(1, 3);  // two blocks of each
      return hn::Add(hn::OddEvenBlocks(y, x), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(x, y)));
    }
  }
}

// ---- row-interleaved loads ----

template <class DI>
HWY_INLINE hn::Vec<DI> broadcast_128(DI di, const std::byte* at) {
  const hn::Repartition<uint8_t, DI> bytes;
  return hn::BitCast(di, hn::LoadDup128(bytes, reinterpret_cast<const uint8_t*>(at)));
}

// 128 bits at `offset` of rows 0, kStep, 2 * kStep, …, one a block of the vector:
//
//   rows[3 * kStep] | rows[2 * kStep] | rows[kStep] | rows[0]
template <int kStep, class DI>
HWY_INLINE hn::Vec<DI> load_row_interleaved(DI di, const std::byte* const* rows, int offset) {
  const auto first = broadcast_128(di, rows[0] + offset);
  if constexpr (hn::MaxLanes(DI()) == 4) {
    return first;
  } else if constexpr (hn::MaxLanes(DI()) == 8) {
    return hn::ConcatUpperLower(di, broadcast_128(di, rows[kStep] + offset), first);
  } else {
    const auto low = hn::OddEvenBlocks(broadcast_128(di, rows[kStep] + offset), first);
    const auto high = hn::OddEvenBlocks(broadcast_128(di, rows[3 * kStep] + offset),
                                        broadcast_128(di, rows[2 * kStep] + offset));
    return hn::ConcatUpperLower(di, high, low);
  }
}

// ---- scales ----

// `meta` [count] -> out, zeros behind. False if a scale is not finite.
inline bool load_row_scales(const std::byte* const* meta, int count, bool affine, int32_t middle,
                            RowScales& out) {
  const hn::CappedTag<float, kRowStep> df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const auto middle_code = hn::Set(df, static_cast<float>(middle));
  auto probe = hn::Zero(df);
  for (int j = 0; j < count; j += kRowStep) {
    float *scale = out.scale + j, *zero = out.zero + j;
    HWY_ALIGN float stored[2 * kRowStep];  // in the order of memory
    const float* from = stored;
    const int fields = affine ? 2 : 1;
    if (j + kRowStep <= count && is_contiguous(meta + j, fields * int64_t{sizeof(float)})) {
      from = reinterpret_cast<const float*>(meta[j]);
    } else {
      for (int i = 0; i < kRowStep * fields; ++i)
        stored[i] = j + i / fields < count ? kv::load<float>(meta[j + i / fields], i % fields) : 0.0f;
    }
    for (int i = 0; i < kRowStep; i += lanes) {
      hn::Vec<decltype(df)> now;
      if (affine) {
        hn::Vec<decltype(df)> lowest;
        hn::LoadInterleaved2(df, from + 2 * i, now, lowest);
        hn::Store(hn::MulAdd(now, middle_code, lowest), df, zero + i);
      } else {
        now = hn::LoadU(df, from + i);
      }
      hn::Store(now, df, scale + i);
      probe = hn::MulAdd(now, hn::Zero(df), probe);
    }
  }
  return hn::AllTrue(df, hn::Eq(probe, hn::Zero(df)));
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
