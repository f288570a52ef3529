// Products of 8-bit codes, and scales of blocks in columns: what scores and values of codes in blocks share. Private to kernels/cpu; compiled once a target.
//
// Four neighbours' products are summed exactly in each 32-bit lane: vpdpbusd where there is VNNI, which multiplies unsigned
// bytes with signed ones. 4-bit codes lie in two *byte planes*: a block's codes 0 … 15 in low halves of its 16 bytes, 16 … 31 in
// high ones.
#if defined(KV_INT8_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_INT8_CODES_INL_H_
#undef KV_INT8_CODES_INL_H_
#else
#define KV_INT8_CODES_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attention/block_codes-inl.h"
#include "kernels/cpu/attention/key_lanes-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// sum + the products of unsigned bytes of a with signed ones of b, added in fours.
template <class DI>
HWY_INLINE hn::Vec<DI> add_quad_products([[maybe_unused]] DI di, hn::Vec<DI> a, hn::Vec<DI> b,
                                         hn::Vec<DI> sum) {
#if HWY_TARGET == HWY_AVX3_DL
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "vm"(b.raw));
  return sum;
#else
  const hn::RepartitionToNarrow<DI> d16;
  const hn::RebindToUnsigned<decltype(d16)> du16;
  const auto codes = hn::BitCast(du16, a);
  const auto even = hn::BitCast(d16, hn::And(codes, hn::Set(du16, 0xff)));
  const auto odd = hn::BitCast(d16, hn::ShiftRight<8>(codes));
  const auto signed16 = hn::BitCast(d16, b);
  sum = add_products(di, even, hn::ShiftRight<8>(hn::ShiftLeft<8>(signed16)), sum);
  return add_products(di, odd, hn::ShiftRight<8>(signed16), sum);
#endif
}

// The same with one word for all lanes of b.
template <class DI>
HWY_INLINE hn::Vec<DI> add_quad_products_of_word([[maybe_unused]] DI di, hn::Vec<DI> a, const int32_t* b,
                                                 hn::Vec<DI> sum) {
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (hn::MaxLanes(DI()) == 16) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "m"(*b));
    return sum;
  }
#endif
  return add_quad_products(di, a, hn::Set(di, *b), sum);
}

template <int kBits>
constexpr int kBytePlanes = 8 / kBits;

// Byte plane kPlane of words.
template <int kBits, int kPlane, class DI>
HWY_INLINE hn::Vec<DI> byte_plane(DI di, hn::Vec<DI> words) {
  if constexpr (kBits == 8) {
    return words;
  } else {
    const hn::RebindToUnsigned<DI> du;
    const auto shifted = hn::ShiftRight<kBits * kPlane>(hn::BitCast(du, words));
    return hn::BitCast(di, hn::And(shifted, hn::Set(du, 0x0f0f0f0fu)));
  }
}

// Plane kPlane of words: bytes, or 16-bit lanes.
template <int kBits, bool kBytes, int kPlane, class DI>
HWY_INLINE hn::Vec<DI> plane_of(DI di, hn::Vec<DI> words) {
  if constexpr (kBytes) return byte_plane<kBits, kPlane>(di, words);
  const hn::RepartitionToNarrow<DI> d16;
  return hn::BitCast(di, plane<kBits, kPlane>(d16, hn::BitCast(d16, words)));
}

// ---- scales ----

// Scales of four blocks, or of two, from block `first` on -> their columns; `top` sees the bits of all of them under a mask.
template <class RowBits, class DF, class D16 = hn::Rebind<uint16_t, DF>>
HWY_INLINE void load_columns(DF df, const std::byte* const* meta, int first, int blocks, int count,
                             hn::Vec<D16> mask, ScaleColumns& out, hn::Vec<D16>& top) {
  constexpr int kBlocks = sizeof(RowBits) / sizeof(uint16_t);
  const D16 half;
  for (int j = 0; j < count; j += kRowStep) {
    RowBits scratch[kRowStep];
    const uint16_t* stored = stored_scales(meta, first, blocks, count, j, scratch);
    for (int i = 0; i < kRowStep; i += static_cast<int>(hn::Lanes(df))) {
      hn::Vec<D16> column[4];
      if constexpr (kBlocks == 4) {
        hn::LoadInterleaved4(half, stored + kBlocks * i, column[0], column[1], column[2], column[3]);
      } else {
        hn::LoadInterleaved2(half, stored + kBlocks * i, column[0], column[1]);
        column[2] = column[3] = hn::Zero(half);
      }
      for (int b = 0; b < 4; ++b) {
        hn::Store(widen_half(df, column[b]), df, out.scale + (first + b) * kTileRows + j + i);
        top = hn::Max(top, hn::And(column[b], mask));
      }
    }
  }
}

// `meta` [count] -> out. False if a scale is not finite, or has a sign and must not.
inline bool load_scale_columns(const std::byte* const* meta, int count, int blocks, bool signs,
                               ScaleColumns& out) {
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<uint16_t, decltype(df)> half;
  const auto mask = hn::Set(half, static_cast<uint16_t>(signs ? 0x7fff : 0xffff));
  auto top = hn::Zero(half);
  for (int first = 0; first < blocks; first += 4) {
    if (blocks == 2) {
      load_columns<uint32_t>(df, meta, first, blocks, count, mask, out, top);
    } else {
      load_columns<uint64_t>(df, meta, first, blocks, count, mask, out, top);
    }
    for (int b = first; b < first + 4; ++b)
      std::fill(out.scale + b * kTileRows + whole_steps(count), out.scale + (b + 1) * kTileRows, 0.0f);
  }
  return hn::AllTrue(half, hn::Lt(top, hn::Set(half, uint16_t{0x7c00})));
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
