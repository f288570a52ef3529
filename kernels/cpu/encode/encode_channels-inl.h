// kChannel up to 8 bits on the vector units: columns lie in lanes. The rows are read twice, the second time
// from the L1 cache: once for the columns' extremes, once for the codes, a strip of columns at a time whose
// zeros and scales stay in registers. Private to kernels/cpu; compiled once a target.
#if defined(KV_ENCODE_CHANNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_ENCODE_CHANNELS_INL_H_
#undef KV_ENCODE_CHANNELS_INL_H_
#else
#define KV_ENCODE_CHANNELS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/encode/encode_lanes-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct ChannelGrids {
  HWY_ALIGN float low[kMaxHeadDim], high[kMaxHeadDim], zero[kMaxHeadDim], inverse_scale[kMaxHeadDim];
};

// Extremes of kVectors vectors of columns; false where one is not finite or beyond f16's limit.
template <int kVectors, class D, class N>
HWY_INLINE bool find_extremes(D d, int group, N n, const float* x, int at, ChannelGrids& grids) {
  hn::Vec<D> low[kVectors], high[kVectors];
  constexpr int kLanes = lanes_of(D());
  for (int v = 0; v < kVectors; ++v) low[v] = high[v] = hn::LoadU(d, x + at + v * kLanes);
  auto sum = hn::Zero(d);
  for (int r = 0; r < group; ++r, x += n) {
    auto in_row = hn::Zero(d);
    for (int v = 0; v < kVectors; ++v) {
      const auto y = hn::LoadU(d, x + at + v * kLanes);
      low[v] = hn::Min(low[v], y);
      high[v] = hn::Max(high[v], y);
      in_row = hn::Add(in_row, y);
    }
    sum = hn::Add(sum, in_row);
  }
  auto least = low[0], most = high[0];
  for (int v = 0; v < kVectors; ++v) {
    least = hn::Min(least, low[v]);
    most = hn::Max(most, high[v]);
    hn::Store(low[v], d, grids.low + at + v * kLanes);
    hn::Store(high[v], d, grids.high + at + v * kLanes);
  }
  return all_finite(d, hn::Mul(sum, hn::Zero(d))) &&
         hn::AllTrue(d, hn::Le(hn::Max(hn::Neg(least), most), hn::Set(d, kLimitF16)));
}

template <class D, class N>
HWY_INLINE bool find_all_extremes(D d, int group, N n, const float* rows, ChannelGrids& grids) {
  constexpr int kLanes = lanes_of(D()), kWide = kLanes == 16 ? 8 : 4;  // bounded by the number of registers
  int at = 0;
  for (; at + kWide * kLanes <= n; at += kWide * kLanes) {
    if (!find_extremes<kWide>(d, group, n, rows, at, grids)) return false;
  }
  for (; at + 4 * kLanes <= n; at += 4 * kLanes) {
    if (!find_extremes<4>(d, group, n, rows, at, grids)) return false;
  }
  for (; at < n; at += kLanes) {
    if (!find_extremes<1>(d, group, n, rows, at, grids)) return false;
  }
  return true;
}

// half_below, of |x| <= 65504.
template <class D, class V>
HWY_INLINE hn::Vec<Bits<D>> half_below_lanes(D d, V x) {
  const Bits<D> di;
  const auto h = half_bits(d, x);
  const auto is_zero = hn::Eq(hn::And(h, hn::Set(di, 0x7fff)), hn::Zero(di));
  const auto is_negative = hn::Eq(hn::And(h, hn::Set(di, 0x8000)), hn::Set(di, 0x8000));
  const auto one = hn::Set(di, 1);
  auto lower = hn::IfThenElse(is_negative, hn::Add(h, one), hn::Sub(h, one));
  lower = hn::IfThenElse(is_zero, hn::Set(di, 0x8001), lower);
  const auto is_below = hn::Le(finite_half(d, h), x);
  return hn::IfThenElse(hn::RebindMask(di, is_below), h, lower);
}

// grid_f16 of every column.
template <class D, class N>
HWY_INLINE void make_grids(D d, float top, N n, ChannelGrids& grids, std::byte* meta) {
  const Bits<D> di;
  const hn::Rebind<uint16_t, D> d16;
  auto* out = reinterpret_cast<uint16_t*>(meta);
  for (int i = 0; i < n; i += lanes_of(d)) {
    // + 0: zeros of both signs are one.
    const auto low = hn::Add(hn::Load(d, grids.low + i), hn::Zero(d));
    const auto high = hn::Add(hn::Load(d, grids.high + i), hn::Zero(d));
    const auto zero_bits = half_below_lanes(d, low);
    const auto zero = finite_half(d, zero_bits);
    const auto span = hn::Sub(high, zero);
    auto scale_bits = half_bits(d, hn::Div(span, hn::Set(d, top)));
    const auto reach = hn::Mul(finite_half(d, scale_bits), hn::Set(d, top + 0.5f));
    const auto falls_short = hn::RebindMask(di, hn::Gt(span, reach));
    scale_bits = hn::IfThenElse(falls_short, hn::Add(scale_bits, hn::Set(di, 1)), scale_bits);
    const auto scale = finite_half(d, scale_bits);
    const auto inverse_scale = hn::Div(hn::Set(d, 1.0f), scale);
    hn::Store(zero, d, grids.zero + i);
    hn::Store(hn::IfThenElseZero(hn::Gt(scale, hn::Zero(d)), inverse_scale), d, grids.inverse_scale + i);
    hn::StoreU(hn::DemoteTo(d16, scale_bits), d16, out + i);
    hn::StoreU(hn::DemoteTo(d16, zero_bits), d16, out + n + i);
  }
}

template <class D, class V>
HWY_INLINE hn::Vec<Bits<D>> channel_sum(D d, V x, V zero, V inverse_scale, V top) {
  const auto code = hn::Min(hn::Mul(hn::Sub(x, zero), inverse_scale), top);
  return hn::BitCast(Bits<D>(), hn::Add(code, hn::Set(d, kAlign)));
}

// Rows one by one.
struct ChannelSums {
  const float* row;
  const ChannelGrids* grids;
  float top;
  template <class D>
  HWY_INLINE hn::Vec<Bits<D>> operator()(D d, int i) const {
    return channel_sum(d, hn::LoadU(d, row + i), hn::LoadU(d, grids->zero + i),
                       hn::LoadU(d, grids->inverse_scale + i), hn::Set(d, top));
  }
};

// Words of all rows, a vector of them at a time: see pack_words().
template <int kBits, class D, class N>
HWY_INLINE void pack_strips(D d, int group, N n, const float* rows, const ChannelGrids& grids,
                            std::byte* packed) {
  constexpr int kFold = fold_of<kBits, D, N>(), kDistance = kBits * kFold, kSlots = 32 / kDistance;
  constexpr int kWords = kDistance * n / 32;
  const Bits<D> di;
  const auto excess = hn::Set(di, static_cast<int32_t>(in_all_slots<kDistance>(kAlignBits)));
  const auto top = hn::Set(d, top_code(kBits));
  for (int w = 0; w < kWords; w += lanes_of(d)) {
    hn::Vec<D> zero[kSlots], inverse_scale[kSlots];
    for (int slot = 0; slot < kSlots; ++slot) {
      zero[slot] = hn::LoadU(d, grids.zero + slot * kWords + w);
      inverse_scale[slot] = hn::LoadU(d, grids.inverse_scale + slot * kWords + w);
    }
    const float* row = rows + w;
    for (int r = 0; r < group; ++r, row += n) {
      auto word = hn::Zero(di);
      for (int slot = kSlots - 1; slot >= 0; --slot) {
        const auto x = hn::LoadU(d, row + slot * kWords);
        word =
            hn::Add(hn::ShiftLeft<kDistance>(word), channel_sum(d, x, zero[slot], inverse_scale[slot], top));
      }
      store_folded<kBits, kFold>(di, hn::Sub(word, excess), packed + r * packed_bytes(kBits, n) + 4 * w);
    }
  }
}

template <class D, class N>
HWY_INLINE bool encode_channel_unit(D d, const Encoding& e, N n, const UnitJob& job) {
  if (!half_meta(e.bits)) return false;
  ChannelGrids grids;
  if (!find_all_extremes(d, e.group, n, job.rows, grids)) return false;
  make_grids(d, top_code(e.bits), n, grids, job.meta);
  if constexpr (!std::is_same_v<N, int>) {
    if (e.bits == 8) return pack_strips<8>(d, e.group, n, job.rows, grids, job.data), true;
    if (e.bits == 4) return pack_strips<4>(d, e.group, n, job.rows, grids, job.data), true;
    if (e.bits == 2) return pack_strips<2>(d, e.group, n, job.rows, grids, job.data), true;
  }
  for (int r = 0; r < e.group; ++r) {
    pack_row(d, e.bits, static_cast<int>(n), ChannelSums{job.rows + r * n, &grids, top_code(e.bits)}, 0,
             job.data + r * packed_bytes(e.bits, n));
  }
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
