// Encoders on the vector units, byte for byte what the scalar ones store. Private to kernels/cpu; compiled
// once a target.
//
// A row is read twice, the second time from the L1 cache: once for its extremes, once for its codes. Scales
// are quantise.h's own, a few scalar operations a row, which overlap the neighbouring rows' vectors; only
// kChannel, with a scale a column, makes them in vectors. Codes first stand in 32-bit lanes on the stack,
// where packing then finds the ones that share a word a constant distance apart.
//
// Every encoder but FP8's returns false, having stored nothing of use, where an element is not finite: NaN
// needs care with every comparison, is rare, and is left to the scalar encoder.
#if defined(KV_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_ENCODE_INL_H_
#undef KV_ENCODE_INL_H_
#else
#define KV_ENCODE_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include <hwy/highway.h>

#include "kernels/attention.h"
#include "kernels/bits.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/formats.h"

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
int lanes_of(D d) {
  return static_cast<int>(hn::Lanes(d));
}

template <class D, class V>
HWY_INLINE hn::Vec<Bits<D>> magnitude_of(D, V x) {
  const Bits<D> di;
  return hn::And(hn::BitCast(di, x), hn::Set(di, 0x7fffffff));
}

template <class D, class V>
HWY_INLINE V clamp_lanes(D d, V x, float low, float high) {
  return hn::Min(hn::Max(x, hn::Set(d, low)), hn::Set(d, high));
}

// nearest_even of |x| <= 2^22, which are whole numbers of a code's size.
template <class D, class V>
HWY_INLINE hn::Vec<Bits<D>> nearest_lanes(D d, V x) {
  const Bits<D> di;
  const auto align = hn::Set(d, 0x1.8p23f);
  return hn::Sub(hn::BitCast(di, hn::Add(x, align)), hn::BitCast(di, align));
}

template <class D>
uint32_t largest_magnitude(D d, int n, const float* x) {
  const Bits<D> di;
  auto largest = hn::Zero(di);
  for (int i = 0; i < n; i += lanes_of(d)) largest = hn::Max(largest, magnitude_of(d, hn::LoadU(d, x + i)));
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
}

// ---- packing ----

struct Codes {
  HWY_ALIGN int32_t code[kMaxHeadDim];
};

// Dealt codes (bits.h): of a word's codes the highest first, each pushing up the ones before.
template <int kBits, class DI>
int pack_words(DI di, int first, int words, const int32_t* codes, std::byte* packed) {
  constexpr int kSlots = 32 / kBits;
  int w = first;
  for (; w + lanes_of(di) <= words; w += lanes_of(di)) {
    auto word = hn::LoadU(di, codes + (kSlots - 1) * words + w);
    for (int slot = kSlots - 2; slot >= 0; --slot)
      word = hn::Or(hn::ShiftLeft<kBits>(word), hn::LoadU(di, codes + slot * words + w));
    hn::StoreU(word, di, reinterpret_cast<int32_t*>(packed + 4 * w));
  }
  return w;
}

// Vectors no wider than a word count's factors: what was stored by wider ones is then forwarded to the loads.
template <int kBits>
void pack_dealt(int n, const Codes& codes, std::byte* packed) {
  const int words = kBits * n / 32;
  int done = 0;
  if (words % 16 == 0) {
    done = pack_words<kBits>(hn::CappedTag<int32_t, 16>(), 0, words, codes.code, packed);
  } else if (words % 8 == 0) {
    done = pack_words<kBits>(hn::CappedTag<int32_t, 8>(), 0, words, codes.code, packed);
  } else {
    done = pack_words<kBits>(hn::CappedTag<int32_t, 4>(), 0, words, codes.code, packed);
  }
  pack_words<kBits>(hn::CappedTag<int32_t, 1>(), done, words, codes.code, packed);
}

inline void pack_row(int bits, int n, const Codes& codes, std::byte* packed) {
  if (is_dealt(bits, n)) {
    if (bits == 1) return pack_dealt<1>(n, codes, packed);
    if (bits == 2) return pack_dealt<2>(n, codes, packed);
    if (bits == 4) return pack_dealt<4>(n, codes, packed);
    return pack_dealt<8>(n, codes, packed);
  }
  uint16_t narrow[kMaxHeadDim];
  for (int i = 0; i < n; ++i) narrow[i] = static_cast<uint16_t>(codes.code[i]);
  pack_codes(bits, n, narrow, packed);
}

// ---- floats ----

template <class D>
void encode_bf16_row(D d, int n, const float* row, std::byte* data) {
  const hn::Rebind<uint16_t, D> d16;
  for (int i = 0; i < n; i += lanes_of(d)) {
    const auto h = hn::DemoteTo(d16, bf16_bits(d, hn::LoadU(d, row + i)));
    hn::StoreU(h, d16, reinterpret_cast<uint16_t*>(data) + i);
  }
}

// f32_to_fp8.
template <Fp8 F, class D, class V>
HWY_INLINE hn::Vec<Bits<D>> fp8_code(D d, V x) {
  constexpr int kShift = 23 - F.mantissa_bits;
  constexpr int32_t kRebias = (127 - F.bias) << 23;
  constexpr int32_t kAlign = (127 + 23 + 1 - F.bias - F.mantissa_bits) << 23;
  const Bits<D> di;
  const auto magnitude = magnitude_of(d, x);
  const auto align = hn::Set(di, kAlign);
  const auto sum = hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, align));
  const auto subnormal = hn::Sub(hn::BitCast(di, sum), align);
  const auto odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(di, 1));
  const auto rounding = hn::Set(di, (1 << (kShift - 1)) - 1 - kRebias);
  const auto normal = hn::ShiftRight<kShift>(hn::Add(hn::Add(magnitude, rounding), odd));
  auto code = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, kRebias + (1 << 23))), subnormal, normal);
  code = hn::Min(code, hn::Set(di, F.largest));
  code = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7f800000)), hn::Set(di, F.nan), code);
  return hn::Or(code, hn::And(hn::ShiftRight<24>(hn::BitCast(di, x)), hn::Set(di, 0x80)));
}

template <class D>
uint32_t largest_finite(D d, int n, const float* x) {
  const Bits<D> di;
  const auto infinity = hn::Set(di, static_cast<int32_t>(kInfinityBits));
  auto largest = hn::Zero(di);
  for (int i = 0; i < n; i += lanes_of(d)) {
    const auto magnitude = magnitude_of(d, hn::LoadU(d, x + i));
    largest = hn::Max(largest, hn::IfThenElseZero(hn::Lt(magnitude, infinity), magnitude));
  }
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
}

template <Fp8 F, class D>
void encode_fp8_row(D d, int n, const float* row, std::byte* data, std::byte* meta) {
  const hn::Rebind<uint8_t, D> d8;
  const float scale = fp8_row_scale<F>(largest_finite(d, n, row));
  const auto inverse_scale = hn::Set(d, 1.0f / scale);
  for (int i = 0; i < n; i += lanes_of(d)) {
    const auto code = fp8_code<F>(d, hn::Mul(hn::LoadU(d, row + i), inverse_scale));
    hn::StoreU(hn::DemoteTo(d8, code), d8, reinterpret_cast<uint8_t*>(data) + i);
  }
  store(meta, 0, scale);
}

// ---- ggml's blocks ----

template <class D>
bool encode_q8_0_row(D d, int n, const float* row, std::byte* data, std::byte* meta) {
  const Bits<D> di;
  const hn::Rebind<int8_t, D> d8;
  const auto half = hn::Set(di, 0x3effffff), sign = hn::Set(di, INT32_MIN);
  for (int b = 0; b < n / kGgmlBlock; ++b, row += kGgmlBlock, data += kGgmlBlock) {
    const uint32_t largest = largest_magnitude(d, kGgmlBlock, row);
    if (largest >= kInfinityBits) return false;
    const BlockScale scale = q8_0_scale(largest);
    const auto inverse_scale = hn::Set(d, scale.inverse);
    for (int i = 0; i < kGgmlBlock; i += lanes_of(d)) {
      const auto x = hn::Mul(hn::LoadU(d, row + i), inverse_scale);
      const auto signed_half = hn::BitCast(d, hn::Or(half, hn::And(hn::BitCast(di, x), sign)));
      const auto code = hn::ConvertTo(di, clamp_lanes(d, hn::Add(x, signed_half), -127.5f, 127.5f));
      hn::StoreU(hn::DemoteTo(d8, code), d8, reinterpret_cast<int8_t*>(data) + i);
    }
    store(meta, b, scale.stored);
  }
  return true;
}

// A block's first element of the largest magnitude, or NaN where an element is not finite.
template <class D>
float first_of_largest(D d, const float* block) {
  const Bits<D> di;
  auto low = hn::LoadU(d, block), high = low;
  auto largest = magnitude_of(d, low);
  for (int i = lanes_of(d); i < kGgmlBlock; i += lanes_of(d)) {
    const auto x = hn::LoadU(d, block + i);
    low = hn::Min(low, x);
    high = hn::Max(high, x);
    largest = hn::Max(largest, magnitude_of(d, x));
  }
  const auto magnitude = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
  if (magnitude >= kInfinityBits) return std::bit_cast<float>(kNanBits);
  const float least = hn::GetLane(hn::MinOfLanes(d, low)), most = hn::GetLane(hn::MaxOfLanes(d, high));
  if (least + most != 0.0f) return most > -least ? most : least;
  const float* first =
      std::find_if(block, block + kGgmlBlock - 1, [=](float x) { return magnitude_bits(x) == magnitude; });
  return *first;
}

template <class D>
bool encode_q4_0_row(D d, int n, const float* row, std::byte* data, std::byte* meta) {
  constexpr int kHalf = kGgmlBlock / 2;
  const Bits<D> di;
  const hn::Rebind<uint8_t, D> d8;
  const auto middle = hn::Set(d, 8.5f);
  for (int b = 0; b < n / kGgmlBlock; ++b, row += kGgmlBlock, data += kHalf) {
    const float first = first_of_largest(d, row);
    if (first != first) return false;
    const BlockScale scale = q4_0_scale(first);
    const auto inverse_scale = hn::Set(d, scale.inverse);
    for (int i = 0; i < kHalf; i += lanes_of(d)) {
      const auto x = hn::Add(hn::Mul(hn::LoadU(d, row + i), inverse_scale), middle);
      const auto y = hn::Add(hn::Mul(hn::LoadU(d, row + i + kHalf), inverse_scale), middle);
      const auto low = hn::ConvertTo(di, clamp_lanes(d, x, 0.0f, 15.0f));
      const auto high = hn::ConvertTo(di, clamp_lanes(d, y, 0.0f, 15.0f));
      const auto byte = hn::Or(low, hn::ShiftLeft<4>(high));
      hn::StoreU(hn::DemoteTo(d8, byte), d8, reinterpret_cast<uint8_t*>(data) + i);
    }
    store(meta, b, scale.stored);
  }
  return true;
}

// ---- uniform grids ----

template <class D>
bool encode_symmetric_row(D d, int bits, int n, const float* row, std::byte* data, std::byte* meta) {
  const uint32_t largest = largest_magnitude(d, n, row);
  if (largest >= kInfinityBits) return false;
  const float scale = symmetric_scale(largest, bits);
  const int middle = 1 << (bits - 1);
  const float top = static_cast<float>(middle - 1);
  const auto inverse_scale = hn::Set(d, inverse(scale));
  const auto offset = hn::Set(Bits<D>(), middle);
  Codes codes;
  for (int i = 0; i < n; i += lanes_of(d)) {
    const auto x = clamp_lanes(d, hn::Mul(hn::LoadU(d, row + i), inverse_scale), -top, top);
    hn::Store(hn::Add(nearest_lanes(d, x), offset), Bits<D>(), codes.code + i);
  }
  pack_row(bits, n, codes, data);
  store(meta, 0, scale);
  return true;
}

template <class D>
bool encode_affine_row(D d, int bits, int n, const float* row, std::byte* data, std::byte* meta) {
  const Bits<D> di;
  auto low = hn::LoadU(d, row), high = low;
  auto largest = magnitude_of(d, low);
  for (int i = lanes_of(d); i < n; i += lanes_of(d)) {
    const auto x = hn::LoadU(d, row + i);
    low = hn::Min(low, x);
    high = hn::Max(high, x);
    largest = hn::Max(largest, magnitude_of(d, x));
  }
  const auto magnitude = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
  if (magnitude >= kInfinityBits) return false;
  const Grid grid =
      affine_grid(hn::GetLane(hn::MinOfLanes(d, low)), hn::GetLane(hn::MaxOfLanes(d, high)), magnitude, bits);
  const auto zero = hn::Set(d, grid.zero), inverse_scale = hn::Set(d, inverse(grid.scale));
  Codes codes;
  for (int i = 0; i < n; i += lanes_of(d)) {
    const auto x = hn::Mul(hn::Sub(hn::LoadU(d, row + i), zero), inverse_scale);
    hn::Store(nearest_lanes(d, clamp_lanes(d, x, 0.0f, top_code(bits))), di, codes.code + i);
  }
  pack_row(bits, n, codes, data);
  store(meta, 0, grid.scale);
  store(meta, 1, grid.zero);
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

// grid_f16's zeros and inverse scales of a unit's columns; its metadata is stored at once.
struct ChannelGrids {
  HWY_ALIGN float zero[kMaxHeadDim], inverse[kMaxHeadDim];
};

template <class D, class V>
HWY_INLINE void make_grids(D d, V low, V high, float top, int n, int at, ChannelGrids& grids,
                           std::byte* meta) {
  const Bits<D> di;
  const hn::Rebind<uint16_t, D> d16;
  low = hn::Add(clamp_lanes(d, low, -kLimitF16, kLimitF16), hn::Zero(d));
  high = clamp_lanes(d, high, -kLimitF16, kLimitF16);
  const auto zero_bits = half_below_lanes(d, low);
  const auto zero = finite_half(d, zero_bits);
  const auto span = hn::Sub(high, zero);
  auto scale_bits = half_bits(d, hn::Div(span, hn::Set(d, top)));
  const auto reach = hn::Mul(finite_half(d, scale_bits), hn::Set(d, top + 0.5f));
  const auto falls_short = hn::RebindMask(di, hn::Gt(span, reach));
  scale_bits = hn::IfThenElse(falls_short, hn::Add(scale_bits, hn::Set(di, 1)), scale_bits);
  scale_bits = hn::IfThenZeroElse(hn::RebindMask(di, hn::Eq(high, zero)), scale_bits);
  const auto scale = finite_half(d, scale_bits);
  const auto inverse = hn::Div(hn::Set(d, 1.0f), scale);
  hn::Store(zero, d, grids.zero + at);
  hn::Store(hn::IfThenElseZero(hn::Gt(scale, hn::Zero(d)), inverse), d, grids.inverse + at);
  auto* out = reinterpret_cast<uint16_t*>(meta);
  hn::StoreU(hn::DemoteTo(d16, scale_bits), d16, out + at);
  hn::StoreU(hn::DemoteTo(d16, zero_bits), d16, out + n + at);
}

template <class D>
bool make_channel_grids(D d, const Encoding& e, int n, const float* rows, ChannelGrids& grids,
                        std::byte* meta) {
  const Bits<D> di;
  for (int at = 0; at < n; at += lanes_of(d)) {
    auto low = hn::LoadU(d, rows + at), high = low;
    auto largest = magnitude_of(d, low);
    for (int r = 1; r < e.group; ++r) {
      const auto x = hn::LoadU(d, rows + int64_t{r} * n + at);
      low = hn::Min(low, x);
      high = hn::Max(high, x);
      largest = hn::Max(largest, magnitude_of(d, x));
    }
    const auto infinity = hn::Set(di, static_cast<int32_t>(kInfinityBits));
    if (!hn::AllTrue(di, hn::Lt(largest, infinity))) return false;
    make_grids(d, low, high, top_code(e.bits), n, at, grids, meta);
  }
  return true;
}

template <class D>
bool encode_channel_unit(D d, const Encoding& e, int n, const float* rows, std::byte* data, std::byte* meta) {
  if (!half_meta(e.bits)) return false;
  ChannelGrids grids;
  if (!make_channel_grids(d, e, n, rows, grids, meta)) return false;
  const float top = top_code(e.bits);
  Codes codes;
  for (int r = 0; r < e.group; ++r, rows += n, data += packed_bytes(e.bits, n)) {
    for (int i = 0; i < n; i += lanes_of(d)) {
      const auto x = hn::Sub(hn::LoadU(d, rows + i), hn::Load(d, grids.zero + i));
      const auto code = clamp_lanes(d, hn::Mul(x, hn::Load(d, grids.inverse + i)), 0.0f, top);
      hn::Store(nearest_lanes(d, code), Bits<D>(), codes.code + i);
    }
    pack_row(e.bits, n, codes, data);
  }
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
