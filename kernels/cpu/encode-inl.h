// Encoders on the vector units, byte for byte what the scalar ones store. Private to kernels/cpu; compiled
// once a target.
//
// A row is read twice, the second time from the L1 cache: once for its extremes, once for its codes. All
// scales of a row are made by one pass of quantise.h's rules, and codes are packed as they are made: a word's
// codes stand a constant distance apart in the row (bits.h), so one vector of codes is shifted onto the next.
//
// Every encoder returns false, having stored nothing of use, where an element is not finite or beyond what
// the format can hold. Those need care with every comparison, are rare, and are left to the scalar encoder;
// for the others a row's own scale keeps its codes in range, and most of the clamping falls away.
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
HWY_INLINE int lanes_of(D d) {
  return static_cast<int>(hn::Lanes(d));
}

template <class D, class V>
HWY_INLINE hn::Vec<Bits<D>> magnitude_of(D, V x) {
  const Bits<D> di;
  return hn::And(hn::BitCast(di, x), hn::Set(di, 0x7fffffff));
}

template <class D>
HWY_INLINE uint32_t largest_magnitude(D d, int n, const float* x) {
  const Bits<D> di;
  auto largest = hn::Zero(di);
  for (int i = 0; i < n; i += lanes_of(d)) largest = hn::Max(largest, magnitude_of(d, hn::LoadU(d, x + i)));
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
}

// ---- codes to bytes ----

// Bytes of element i on, from four vectors of codes at a time: in a lane of 32 bits they lie one above the
// other, and two shuffles bring them into the row's order, fewer than narrowing each vector takes. Codes may
// be signed: `flip` is then 0x80808080, the sign bits that keep each sum from borrowing of the next byte.
template <class D, class Code>
HWY_INLINE void store_bytes(D d, int n, const Code& code, uint32_t flip, std::byte* out) {
  const Bits<D> di;
  const hn::Repartition<uint8_t, D> d8;
  HWY_ALIGN static constexpr uint8_t kTransposed[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const auto transposed = hn::LoadDup128(d8, kTransposed);
  const int lanes = lanes_of(d), blocks = lanes / 4;
  HWY_ALIGN int32_t order[hn::MaxLanes(D())];
  for (int i = 0; i < lanes; ++i) order[i] = i % blocks * 4 + i / blocks;
  const auto in_order = hn::SetTableIndices(di, order);
  const auto signs = hn::Set(di, static_cast<int32_t>(flip));
  int i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    auto word = hn::Add(hn::ShiftLeft<8>(code(d, i + 3 * lanes)), code(d, i + 2 * lanes));
    word = hn::Add(hn::ShiftLeft<8>(word), code(d, i + lanes));
    word = hn::Add(hn::ShiftLeft<8>(word), code(d, i));
    word = hn::Xor(hn::Add(word, signs), signs);
    word = hn::BitCast(di, hn::TableLookupBytes(hn::BitCast(d8, word), transposed));
    hn::StoreU(hn::TableLookupLanes(word, in_order), di, reinterpret_cast<int32_t*>(out + i));
  }
  const hn::Rebind<uint8_t, D> narrow;
  for (; i < n; i += lanes) {
    const auto byte = hn::And(code(d, i), hn::Set(di, 0xff));
    hn::StoreU(hn::DemoteTo(narrow, byte), narrow, reinterpret_cast<uint8_t*>(out) + i);
  }
}

// ---- floats ----

template <class D>
bool encode_f16_row(D d, int n, const float* row, std::byte* data) {
  for (int i = 0; i < n; i += lanes_of(d)) {
    const auto x = hn::LoadU(d, row + i);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    const hn::Rebind<hwy::float16_t, D> d16;  // this hardware rounds to nearest even
    hn::StoreU(hn::DemoteTo(d16, x), d16, reinterpret_cast<hwy::float16_t*>(data) + i);
#else
    const hn::Rebind<uint16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, half_bits(d, x)), d16, reinterpret_cast<uint16_t*>(data) + i);
#endif
  }
  return true;
}

template <class D>
bool encode_bf16_row(D d, int n, const float* row, std::byte* data) {
  const hn::Rebind<uint16_t, D> d16;
  for (int i = 0; i < n; i += lanes_of(d)) {
    const auto h = hn::DemoteTo(d16, bf16_bits(d, hn::LoadU(d, row + i)));
    hn::StoreU(h, d16, reinterpret_cast<uint16_t*>(data) + i);
  }
  return true;
}

// f32_to_fp8 of numbers in range. The step of the subnormals is never wider than a number's own, and their
// code is the larger one from the smallest normal number up: so the smaller of both is right on either side.
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
  const auto at_least_normal = hn::Max(magnitude, hn::Set(di, kRebias + (1 << 23)));
  const auto odd = hn::And(hn::ShiftRight<kShift>(at_least_normal), hn::Set(di, 1));
  const auto rounding = hn::Set(di, (1 << (kShift - 1)) - 1 - kRebias);
  const auto normal = hn::ShiftRight<kShift>(hn::Add(hn::Add(at_least_normal, rounding), odd));
  const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(di, x)), hn::Set(di, 0x80));
  return hn::Or(hn::Min(subnormal, normal), sign);
}

template <Fp8 F>
struct Fp8Codes {
  const float* row;
  float inverse_scale;
  template <class D>
  HWY_INLINE hn::Vec<Bits<D>> operator()(D d, int i) const {
    return fp8_code<F>(d, hn::Mul(hn::LoadU(d, row + i), hn::Set(d, inverse_scale)));
  }
};

template <Fp8 F, class D>
bool encode_fp8_row(D d, int n, const float* row, std::byte* data, std::byte* meta) {
  const uint32_t largest = largest_magnitude(d, n, row);
  if (largest > kLargestFp8Row) return false;
  const float scale = fp8_row_scale<F>(largest);
  store_bytes(d, n, Fp8Codes<F>{row, 1.0f / scale}, 0, data);
  store(meta, 0, scale);
  return true;
}

// ---- ggml's blocks, four at a time ----

constexpr int kBlocks = 4;
using Four = hn::CappedTag<float, 4>;  // a lane a block

struct MaxOf {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};
struct MinOf {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Min(a, b);
  }
};

template <class D, class V, class Op>
HWY_INLINE auto across_halves([[maybe_unused]] D d, V v, Op op) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return across_halves(half, op(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), op);
  }
}

// Each of four vectors to one lane.
template <class D, class V, class Op>
HWY_INLINE auto across_lanes(D d, V a, V b, V c, V e, Op op) {
  const V ab = op(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = op(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const hn::Repartition<double, D> pairs;
  const auto x = hn::BitCast(pairs, ab), y = hn::BitCast(pairs, ce);
  const V low = hn::BitCast(d, hn::InterleaveLower(pairs, x, y));
  const V high = hn::BitCast(d, hn::InterleaveUpper(pairs, x, y));
  return across_halves(d, op(low, high), op);
}

template <class V>
struct Extremes {
  V low, high;
};

template <class D>
HWY_INLINE Extremes<hn::Vec<D>> block_extremes(D d, const float* x) {
  auto low = hn::LoadU(d, x), high = low;
  for (int i = lanes_of(d); i < kGgmlBlock; i += lanes_of(d)) {
    const auto y = hn::LoadU(d, x + i);
    low = hn::Min(low, y);
    high = hn::Max(high, y);
  }
  return {low, high};
}

// As integers, which order NaN and infinity above all.
template <class D>
HWY_INLINE hn::Vec<Bits<D>> block_magnitude(D d, const float* x) {
  auto largest = magnitude_of(d, hn::LoadU(d, x));
  for (int i = lanes_of(d); i < kGgmlBlock; i += lanes_of(d))
    largest = hn::Max(largest, magnitude_of(d, hn::LoadU(d, x + i)));
  return largest;
}

// What is not finite turns a sum of x * 0 into NaN.
template <class D>
HWY_INLINE bool all_finite(D d, int n, const float* x) {
  auto probe = hn::Zero(d);
  for (int i = 0; i < n; i += lanes_of(d)) probe = hn::MulAdd(hn::LoadU(d, x + i), hn::Zero(d), probe);
  return hn::AllTrue(d, hn::Eq(probe, probe));
}

// block_scale() of scales up to f16's largest: stores `count` of them, and the inverses of all four.
template <class V>
HWY_INLINE void store_block_scales(V scale, int count, std::byte* stored, float* inverse_scale) {
  const Four d;
  const hn::Rebind<uint16_t, Four> d16;
  uint16_t half[kBlocks];
  hn::StoreU(hn::DemoteTo(d16, half_bits(d, scale)), d16, half);
  std::memcpy(stored, half, 2 * static_cast<size_t>(count));
  const auto tiny = hn::Lt(hn::Abs(scale), hn::Set(d, 0x1p-126f));
  hn::Store(hn::IfThenZeroElse(tiny, hn::Div(hn::Set(d, 1.0f), scale)), d, inverse_scale);
}

// Where blocks of a row begin of which `count`, 1 … 4, are left; the last one stands for those that are not.
struct BlockPlaces {
  const float* at[kBlocks];
  BlockPlaces(const float* x, int count) {
    for (int b = 0; b < kBlocks; ++b) at[b] = x + std::min(b, count - 1) * kGgmlBlock;
  }
};

// q8_0_code, of blocks in range.
struct Q8Codes {
  const float* x;
  const float* inverse_scale;  // of each block
  template <class D>
  HWY_INLINE hn::Vec<Bits<D>> operator()(D d, int i) const {
    const Bits<D> di;
    const auto code = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, inverse_scale[i / kGgmlBlock]));
    const auto sign = hn::And(hn::BitCast(di, code), hn::Set(di, INT32_MIN));
    const auto half = hn::BitCast(d, hn::Or(sign, hn::Set(di, 0x3effffff)));
    return hn::ConvertTo(di, hn::Add(code, half));
  }
};

template <class D>
HWY_INLINE bool encode_q8_0_blocks(D d, int count, const float* x, std::byte* data, std::byte* meta) {
  const Bits<D> di;
  const Four four;
  const BlockPlaces block(x, count);
  const auto largest =
      across_lanes(di, block_magnitude(d, block.at[0]), block_magnitude(d, block.at[1]),
                   block_magnitude(d, block.at[2]), block_magnitude(d, block.at[3]), MaxOf());
  const auto scale = hn::Div(hn::BitCast(four, largest), hn::Set(four, 127.0f));
  if (!hn::AllTrue(four, hn::Le(scale, hn::Set(four, kLargestHalf)))) return false;
  HWY_ALIGN float inverse_scale[kBlocks];
  store_block_scales(scale, count, meta, inverse_scale);
  store_bytes(d, count * kGgmlBlock, Q8Codes{x, inverse_scale}, 0x80808080u, data);
  return true;
}

// Each block's first element of the largest magnitude. Where the largest and the smallest are each other's
// negatives, which is rare, only the block itself can tell.
template <class D>
HWY_INLINE hn::Vec<Four> first_of_largest(D d, const float* x, int count) {
  const Four four;
  const BlockPlaces block(x, count);
  const auto a = block_extremes(d, block.at[0]), b = block_extremes(d, block.at[1]),
             c = block_extremes(d, block.at[2]), e = block_extremes(d, block.at[3]);
  const auto low = across_lanes(d, a.low, b.low, c.low, e.low, MinOf());
  const auto high = across_lanes(d, a.high, b.high, c.high, e.high, MaxOf());
  const auto negative = hn::Neg(low);
  if (HWY_LIKELY(hn::AllFalse(four, hn::Eq(high, negative))))
    return hn::IfThenElse(hn::Gt(high, negative), high, low);
  HWY_ALIGN float first[kBlocks];
  hn::Store(hn::Max(high, negative), four, first);
  for (int i = 0; i < kBlocks; ++i) {
    const float* end = block.at[i] + kGgmlBlock - 1;
    first[i] = *std::find_if(block.at[i], end, [&](float y) { return std::fabs(y) == first[i]; });
  }
  return hn::Load(four, first);
}

// Byte i: q4_0_code of elements i and i + 16 of its block, of blocks in range.
struct Q4Codes {
  const float* x;
  const float* inverse_scale;  // of each block
  template <class D>
  HWY_INLINE hn::Vec<Bits<D>> operator()(D d, int i) const {
    constexpr int kHalf = kGgmlBlock / 2;
    const Bits<D> di;
    const auto factor = hn::Set(d, inverse_scale[i / kHalf]), middle = hn::Set(d, 8.5f),
               top = hn::Set(d, 15.0f);
    const float* from = x + i / kHalf * kGgmlBlock + i % kHalf;
    const auto low = hn::Min(hn::Add(hn::Mul(hn::LoadU(d, from), factor), middle), top);
    const auto high = hn::Min(hn::Add(hn::Mul(hn::LoadU(d, from + kHalf), factor), middle), top);
    return hn::Or(hn::ConvertTo(di, low), hn::ShiftLeft<4>(hn::ConvertTo(di, high)));
  }
};

template <class D>
HWY_INLINE bool encode_q4_0_blocks(D d, int count, const float* x, std::byte* data, std::byte* meta) {
  const Four four;
  if (!all_finite(d, count * kGgmlBlock, x)) return false;
  // + 0: a block of -0 has the sign of +0.
  const auto first = hn::Add(first_of_largest(d, x, count), hn::Zero(four));
  const auto scale = hn::Div(first, hn::Set(four, -8.0f));
  if (!hn::AllTrue(four, hn::Le(hn::Abs(scale), hn::Set(four, kLargestHalf)))) return false;
  HWY_ALIGN float inverse_scale[kBlocks];
  store_block_scales(scale, count, meta, inverse_scale);
  store_bytes(d, count * kGgmlBlock / 2, Q4Codes{x, inverse_scale}, 0, data);
  return true;
}

template <class D>
bool encode_ggml_row(D d, Format format, int n, const float* row, std::byte* data, std::byte* meta) {
  const bool wide = format == Format::kQ8_0;
  for (int left = n / kGgmlBlock; left > 0; left -= kBlocks) {
    const int count = std::min(kBlocks, left);
    if (!(wide ? encode_q8_0_blocks(d, count, row, data, meta)
               : encode_q4_0_blocks(d, count, row, data, meta)))
      return false;
    row += kBlocks * kGgmlBlock;
    data += kBlocks * kGgmlBlock / (wide ? 1 : 2);
    meta += 2 * kBlocks;
  }
  return true;
}

// ---- codes to words ----

// A number that moves the last place of a sum to 1, so that the sum's lowest bits are the nearest integer:
// see nearest_even(). Its own bits and what else a code is to be above stay in the sum until a word is full.
constexpr float kAlign = 0x1.8p23f;
constexpr uint32_t kAlignBits = 0x4b400000u;

// A row's codes as words of dealt codes. `Sums` gives, for elements i on, the bits of (code - offset) +
// kAlign.
template <int kBits, class D, class Sums>
HWY_INLINE void pack_words(D d, int n, const Sums& sums, uint32_t offset, std::byte* packed) {
  constexpr int kSlots = 32 / kBits;
  constexpr uint32_t kOnes = kBits == 8 ? 0x01010101u : kBits == 4 ? 0x11111111u : 0x55555555u;
  const Bits<D> di;
  const int words = kBits * n / 32;
  const auto excess = hn::Set(di, static_cast<int32_t>((kAlignBits - offset) * kOnes));
  for (int w = 0; w < words; w += lanes_of(d)) {
    auto word = sums(d, (kSlots - 1) * words + w);
    for (int slot = kSlots - 2; slot >= 0; --slot)
      word = hn::Add(hn::ShiftLeft<kBits>(word), sums(d, slot * words + w));
    hn::StoreU(hn::Sub(word, excess), di, reinterpret_cast<int32_t*>(packed) + w);
  }
}

template <class D, class Sums>
HWY_INLINE void pack_words(D d, int bits, int n, const Sums& sums, uint32_t offset, std::byte* packed) {
  if (bits == 8) return pack_words<8>(d, n, sums, offset, packed);
  if (bits == 4) return pack_words<4>(d, n, sums, offset, packed);
  pack_words<2>(d, n, sums, offset, packed);
}

// Rows whose words fill no vectors, and codes that are not dealt, by the scalar packer.
template <class D, class Sums>
void pack_others(D d, int bits, int n, const Sums& sums, uint32_t offset, std::byte* packed) {
  HWY_ALIGN int32_t wide[kMaxHeadDim];
  uint16_t codes[kMaxHeadDim];
  for (int i = 0; i < n; i += lanes_of(d)) hn::StoreU(sums(d, i), Bits<D>(), wide + i);
  for (int i = 0; i < n; ++i)
    codes[i] = static_cast<uint16_t>(static_cast<uint32_t>(wide[i]) - kAlignBits + offset);
  pack_codes(bits, n, codes, packed);
}

// Words are made as many at a time as divide their number.
template <class Sums>
HWY_INLINE void pack_row(int bits, int n, const Sums& sums, uint32_t offset, std::byte* packed) {
  const int words = bits * n / 32;
  const hn::CappedTag<float, 16> d16;
  const hn::CappedTag<float, 8> d8;
  const hn::CappedTag<float, 4> d4;
  if (!is_dealt(bits, n) || bits == 1 || words % 4 != 0)
    return pack_others(d8, bits, n, sums, offset, packed);
  if (words % 16 == 0) return pack_words(d16, bits, n, sums, offset, packed);
  if (words % 8 == 0) return pack_words(d8, bits, n, sums, offset, packed);
  pack_words(d4, bits, n, sums, offset, packed);
}

// ---- kToken ----

struct SymmetricSums {
  const float* row;
  float inverse_scale;
  template <class D>
  HWY_INLINE hn::Vec<Bits<D>> operator()(D d, int i) const {
    const auto code = hn::Mul(hn::LoadU(d, row + i), hn::Set(d, inverse_scale));
    return hn::BitCast(Bits<D>(), hn::Add(code, hn::Set(d, kAlign)));
  }
};

template <class D>
bool encode_symmetric_row(D d, int bits, int n, const float* row, std::byte* data, std::byte* meta) {
  const uint32_t largest = largest_magnitude(d, n, row);
  if (largest > std::bit_cast<uint32_t>(kLimitF32)) return false;
  const float scale = symmetric_scale(largest, bits);
  pack_row(bits, n, SymmetricSums{row, inverse(scale)}, 1u << (bits - 1), data);
  store(meta, 0, scale);
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

template <class D>
bool encode_affine_row(D d, int bits, int n, const float* row, std::byte* data, std::byte* meta) {
  auto low = hn::LoadU(d, row), high = low, probe = hn::Mul(low, hn::Zero(d));
  for (int i = lanes_of(d); i < n; i += lanes_of(d)) {
    const auto x = hn::LoadU(d, row + i);
    low = hn::Min(low, x);
    high = hn::Max(high, x);
    probe = hn::MulAdd(x, hn::Zero(d), probe);  // NaN where x is not finite
  }
  const float least = hn::GetLane(hn::MinOfLanes(d, low)), most = hn::GetLane(hn::MaxOfLanes(d, high));
  if (!hn::AllTrue(d, hn::Eq(probe, probe)) || least < -kLimitF32 || most > kLimitF32) return false;
  const Grid grid = grid_f32(least, most, top_code(bits));
  pack_row(bits, n, AffineSums{row, grid.zero, inverse(grid.scale)}, 0, data);
  store(meta, 0, grid.scale);
  store(meta, 1, grid.zero);
  return true;
}

// ---- kChannel, up to 8 bits ----

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

struct ChannelGrids {
  HWY_ALIGN float low[kMaxHeadDim], high[kMaxHeadDim], zero[kMaxHeadDim], inverse_scale[kMaxHeadDim];
};

// Columns' extremes, four vectors of them at a time, so that whole lines are read in order; false where one
// is not finite or beyond f16's limit.
template <class D>
bool find_extremes(D d, int group, int n, const float* rows, ChannelGrids& grids) {
  const int lanes = lanes_of(d);
  for (int at = 0; at < n; at += 4 * lanes) {
    const int last = n - lanes - at;  // of the columns' vectors the last, which short chunks repeat
    const int i1 = std::min(lanes, last), i2 = std::min(2 * lanes, last), i3 = std::min(3 * lanes, last);
    const float* x = rows + at;
    auto low0 = hn::LoadU(d, x), low1 = hn::LoadU(d, x + i1), low2 = hn::LoadU(d, x + i2),
         low3 = hn::LoadU(d, x + i3);
    auto high0 = low0, high1 = low1, high2 = low2, high3 = low3;
    auto probe = hn::Zero(d);
    for (int r = 0; r < group; ++r, x += n) {
      const auto x0 = hn::LoadU(d, x), x1 = hn::LoadU(d, x + i1), x2 = hn::LoadU(d, x + i2),
                 x3 = hn::LoadU(d, x + i3);
      low0 = hn::Min(low0, x0), high0 = hn::Max(high0, x0);
      low1 = hn::Min(low1, x1), high1 = hn::Max(high1, x1);
      low2 = hn::Min(low2, x2), high2 = hn::Max(high2, x2);
      low3 = hn::Min(low3, x3), high3 = hn::Max(high3, x3);
      const auto sum = hn::Add(hn::Add(x0, x1), hn::Add(x2, x3));  // finite: far below f32's end, or refused
      probe = hn::MulAdd(sum, hn::Zero(d), probe);
    }
    const auto limit = hn::Set(d, kLimitF16), zero = hn::Zero(d);
    const auto least = hn::Min(hn::Min(low0, low1), hn::Min(low2, low3));
    const auto most = hn::Max(hn::Max(high0, high1), hn::Max(high2, high3));
    const auto fits = hn::And(hn::Le(hn::Max(hn::Neg(least), most), limit), hn::Eq(probe, zero));
    if (!hn::AllTrue(d, fits)) return false;
    hn::Store(low0, d, grids.low + at), hn::Store(high0, d, grids.high + at);
    hn::StoreU(low1, d, grids.low + at + i1), hn::StoreU(high1, d, grids.high + at + i1);
    hn::StoreU(low2, d, grids.low + at + i2), hn::StoreU(high2, d, grids.high + at + i2);
    hn::StoreU(low3, d, grids.low + at + i3), hn::StoreU(high3, d, grids.high + at + i3);
  }
  return true;
}

// grid_f16 of every column.
template <class D>
void make_grids(D d, float top, int n, ChannelGrids& grids, std::byte* meta) {
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

struct ChannelSums {
  const float* row;
  const ChannelGrids* grids;
  float top;
  template <class D>
  HWY_INLINE hn::Vec<Bits<D>> operator()(D d, int i) const {
    const auto x = hn::Sub(hn::LoadU(d, row + i), hn::LoadU(d, grids->zero + i));
    const auto code = hn::Min(hn::Mul(x, hn::LoadU(d, grids->inverse_scale + i)), hn::Set(d, top));
    return hn::BitCast(Bits<D>(), hn::Add(code, hn::Set(d, kAlign)));
  }
};

template <class D>
bool encode_channel_unit(D d, const Encoding& e, int n, const float* rows, std::byte* data, std::byte* meta) {
  if (!half_meta(e.bits)) return false;
  ChannelGrids grids;
  if (!find_extremes(d, e.group, n, rows, grids)) return false;
  const float top = top_code(e.bits);
  make_grids(d, top, n, grids, meta);
  for (int r = 0; r < e.group; ++r, rows += n, data += packed_bytes(e.bits, n))
    pack_row(e.bits, n, ChannelSums{rows, &grids, top}, 0, data);
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
