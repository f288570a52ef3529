// Codes lie in words so that one shift brings consecutive elements' codes to the lowest bits of a vector's lanes
// (kernels/format/bits.h). A code of 2 or 4 bits then finds its magnitude among at most eight in registers and has its
// sign moved to the top; one of 8 bits has its exponent and mantissa moved to those of an f32.
#include "kernels/cpu/encode/decode_levels.h"

#include "kernels/cpu/targets.h"
#include "kernels/format/list.h"
#include "kernels/hadamard.h"

#ifndef KV_LEVEL_TABLES  // this file is compiled once a target
#define KV_LEVEL_TABLES
namespace kv::cpu {
// Eight magnitudes, twice, so that vectors of any width can be loaded; and what the lowest four bits of a lane stand for, if a
// code's sign is the bit `sign` (0: none, signs lie apart) and its magnitude the bits below, of two in that case.
struct Magnitudes {
  alignas(64) float twice[16];
  alignas(64) float signed_levels[16];
};
static constexpr Magnitudes repeated(const float (&eight)[8], int sign) {
  Magnitudes all{};
  const int mask = sign == 0 ? 3 : sign - 1;
  for (int i = 0; i < 16; ++i) {
    all.twice[i] = eight[i % 8];
    all.signed_levels[i] = i & sign ? -eight[i & mask] : eight[i & mask];
  }
  return all;
}
static constexpr Magnitudes kE2m1 = repeated(kE2m1Magnitudes, 8);
static constexpr Magnitudes kTurbo[] = {repeated(kTurboLevels[0], 2), repeated(kTurboLevels[1], 2),
                                        repeated(kTurboLevels[2], 0), repeated(kTurboLevels[3], 8)};

// The value of a stored scale.
template <class Value>
static constexpr std::array<float, 256> table_of(Value value) {
  std::array<float, 256> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = value(static_cast<uint8_t>(i));
  return all;
}
static constexpr auto kE8m0Values = table_of(e8m0_to_f32);
static constexpr auto kE4m3Values = table_of(fp8_to_f32<kE4M3>);
}  // namespace kv::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/encode/decode_levels.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc).
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/integer_levels-inl.h"
#include "kernels/cpu/unroll-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The scale of an element: of its block, by a table of what a stored scale is, times that of its row; or of its row.
template <int kElements>
struct BlockScale {
  float scale[kMaxHeadDim / kElements];
  HWY_INLINE BlockScale(const float* values, const std::byte* stored, int n, float row) {
    for (int b = 0; b < n / kElements; ++b) scale[b] = values[static_cast<uint8_t>(stored[b])] * row;
  }
  HWY_INLINE float of(int i) const { return scale[i / kElements]; }
};
struct RowScale {
  float row;
  float of(int) const { return row; }
};

// Bits i, i + 1, … of a plane of signs, each in the highest bit of its lane.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> signs_from(D d, const std::byte* signs, int i) {
  const hn::RebindToUnsigned<D> du;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const uint32_t some = lanes == 16 ? load<uint16_t>(signs + i / 8, 0)
                                    : static_cast<uint32_t>(load<uint8_t>(signs + i / 8, 0)) >> (i % 8);
  const auto shifts = hn::Sub(hn::Set(du, 31u), hn::Iota(du, 0u));
  return hn::And(hn::Shl(hn::Set(du, some), shifts), hn::Set(du, 0x80000000u));
}

// Numbers of eight, by their places.
template <class D>
class Table {
 public:
  Table(D d, const Magnitudes& of)
      : d_(d), low_(hn::Load(d, of.twice)), high_(hn::Load(d, of.twice + hn::Lanes(d) % 8)) {}
  HWY_INLINE hn::Vec<D> at(hn::Vec<hn::RebindToSigned<D>> i) const {
    const hn::RebindToSigned<D> di;
    const auto place = hn::IndicesFromVec(d_, hn::And(i, hn::Set(di, 3)));
    const auto is_high = hn::RebindMask(d_, hn::Gt(i, hn::Set(di, 3)));
    return hn::IfThenElse(is_high, hn::TableLookupLanes(high_, place), hn::TableLookupLanes(low_, place));
  }

 private:
  D d_;
  hn::Vec<D> low_, high_;
};

// Codes of kWidth bits, the sign highest; or magnitudes alone, whose signs lie apart.
template <int kWidth, bool kApart = false>
struct SignedLevels {
  static constexpr int kBits = kWidth;
  const Magnitudes& magnitudes;
  const std::byte* signs;  // if stored apart

  template <class D>
  struct Decoder {
    D d;
    Table<D> table;
    const std::byte* signs;
    const Magnitudes& magnitudes;
    // The lowest bits of a word that a look-up of one instruction minds; 0: there is none.
    static constexpr int kMinded = HWY_TARGET > HWY_AVX2     ? 0
                                   : hn::MaxLanes(D()) == 16 ? 4
                                   : hn::MaxLanes(D()) == 8  ? 3
                                                             : 0;
    template <class V>
    HWY_INLINE hn::Vec<D> level(V words) const {
#if HWY_TARGET <= HWY_AVX2
      [[maybe_unused]] const auto levels = hn::Load(d, magnitudes.signed_levels);
      if constexpr (kMinded == 4) return hn::Vec<D>{_mm512_permutexvar_ps(words.raw, levels.raw)};
      if constexpr (kMinded == 3) return hn::Vec<D>{_mm256_permutevar8x32_ps(levels.raw, words.raw)};
#endif
      const auto mask = hn::Set(hn::RebindToUnsigned<D>(), (1u << (kApart ? kWidth : kWidth - 1)) - 1u);
      return table.at(hn::BitCast(hn::RebindToSigned<D>(), hn::And(words, mask)));
    }
    template <int kSlot, class V>
    HWY_INLINE hn::Vec<D> decode(V all, [[maybe_unused]] int i) const {
      const hn::RebindToUnsigned<D> du;
      const auto words = hn::ShiftRight<kSlot * kWidth>(all);
      const auto found = level(words);
      if constexpr (kApart && kMinded == 4) {
        const auto* bits = reinterpret_cast<const uint8_t*>(signs + i / 8);
        return hn::IfThenElse(hn::LoadMaskBits(d, bits), hn::Neg(found), found);
      }
      if constexpr (!kApart && kWidth <= kMinded) return found;
      auto sign = hn::And(hn::ShiftLeft<32 - kWidth>(words), hn::Set(du, 0x80000000u));
      if constexpr (kApart) sign = signs_from(d, signs, i);
      return hn::BitCast(d, hn::Xor(hn::BitCast(du, found), sign));
    }
  };
  template <class D>
  Decoder<D> decoder(D d) const {
    return {d, Table<D>(d, magnitudes), signs, magnitudes};
  }
};

// FP8 in an f32's places is the number divided by the power of two by which the biases differ.
template <Fp8 F>
struct Fp8Levels {
  static constexpr int kBits = 8;

  template <class D>
  struct Decoder {
    D d;
    template <int kSlot, class V>
    HWY_INLINE hn::Vec<D> decode(V all, int) const {
      const hn::RebindToSigned<D> di;
      constexpr float kFactor = F.mantissa_bits == 3 ? 0x1p120f : 0x1p112f;
      constexpr int kShift = 1 + F.mantissa_bits;  // from the highest byte; copies of the sign follow it
      constexpr auto kMask = static_cast<int32_t>(0x80000000u | 0x7fu << (23 - F.mantissa_bits));
      const auto top = hn::BitCast(di, hn::ShiftLeft<24 - 8 * kSlot>(all));
      const auto number = hn::And(hn::ShiftRight<kShift>(top), hn::Set(di, kMask));
      return hn::Mul(hn::BitCast(d, number), hn::Set(d, kFactor));
    }
  };
  template <class D>
  Decoder<D> decoder(D d) const {
    return {d};
  }
};

// kTogether slots of the words fill a vector.
template <int kTogether, class D, class Levels, class Scale>
HWY_INLINE void decode_words(D d, const Levels& levels, const Scale& scale, int words, const std::byte* data,
                             float* out) {
  const hn::RebindToUnsigned<D> du;
  const auto decoder = levels.decoder(d);
  for (int w = 0; w < words; w += static_cast<int>(hn::Lanes(d))) {
    const auto* from = reinterpret_cast<const uint32_t*>(data) + w;
    hn::Vec<decltype(du)> some;
    if constexpr (kTogether == 1) {
      some = hn::LoadU(du, from);
    } else {  // the upper half is a slot ahead
      const hn::Half<decltype(du)> half;
      const auto all = hn::LoadU(half, from);
      some = hn::Combine(du, hn::ShiftRight<Levels::kBits>(all), all);
    }
    unroll<32 / Levels::kBits / kTogether>([&](auto index) KV_INLINE {
      constexpr int kSlot = decltype(index)::value * kTogether;
      const int i = kSlot * words + w;
      const auto x = decoder.template decode<kSlot>(some, i);
      hn::StoreU(hn::Mul(x, hn::Set(d, scale.of(i))), d, out + i);
    });
  }
}

template <class Levels, class Scale>
HWY_INLINE void decode_row(const Levels& levels, const Scale& scale, int head_dim, const std::byte* data,
                           float* out) {
  const int words = head_dim * Levels::kBits / 32;
  const hn::CappedTag<float, 16> full;
  constexpr int kLanes = hn::MaxLanes(full);
  if (words % kLanes == 0) return decode_words<1>(full, levels, scale, words, data, out);
  if constexpr (kLanes == 16) {
    if (words == 8) return decode_words<2>(full, levels, scale, words, data, out);
  }
  if (words % 8 == 0) return decode_words<1>(hn::CappedTag<float, 8>(), levels, scale, words, data, out);
  decode_words<1>(hn::CappedTag<float, 4>(), levels, scale, words, data, out);
}

// A stored f16 number.
HWY_INLINE float widen_one(const std::byte* meta, int i) {
  const hn::CappedTag<float, 4> d;
  return hn::GetLane(widen_half(d, hn::Set(hn::Rebind<uint16_t, decltype(d)>(), load<uint16_t>(meta, i))));
}

// `each` with the signs of a plane.
void decode_signs(float each, int head_dim, const std::byte* signs, float* out) {
  const hn::CappedTag<float, 16> d;
  const auto magnitude = hn::BitCast(hn::RebindToUnsigned<decltype(d)>(), hn::Set(d, each));
  for (int i = 0; i < head_dim; i += static_cast<int>(hn::Lanes(d)))
    hn::StoreU(hn::BitCast(d, hn::Xor(magnitude, signs_from(d, signs, i))), d, out + i);
}

template <Fp8 F>
HWY_INLINE void decode_of(MxFormat<MxFp8Element<F>>, const Encoding&, int n, const std::byte* data,
                          const std::byte* meta, float* out) {
  decode_row(Fp8Levels<F>(), BlockScale<32>(kE8m0Values.data(), meta, n, 1.0f), n, data, out);
}

HWY_INLINE void decode_of(MxFp4Format, const Encoding&, int n, const std::byte* data, const std::byte* meta,
                          float* out) {
  decode_row(SignedLevels<4>{kE2m1, nullptr}, BlockScale<32>(kE8m0Values.data(), meta, n, 1.0f), n, data,
             out);
}

HWY_INLINE void decode_of(NvFp4Format, const Encoding& e, int n, const std::byte* data, const std::byte* meta,
                          float* out) {
  const BlockScale<16> scale(kE4m3Values.data(), meta + NvFp4Format::scales_at(e), n,
                             NvFp4Format::row_scale(e, meta));
  decode_row(SignedLevels<4>{kE2m1, nullptr}, scale, n, data, out);
}

void add_sketch(float each, int n, const std::byte* signs, float* out) {
  HWY_ALIGN float sketched[kMaxHeadDim];
  decode_signs(each, n, signs, sketched);
  hadamard_row(sketched, n, sketched);
  for (int i = 0; i < n; ++i)
    out[i] += std::bit_cast<float>(std::bit_cast<uint32_t>(sketched[i]) ^ kSketchFlips[i]);
}

HWY_INLINE void decode_of(TurboFormat, const Encoding& e, int n, const std::byte* data, const std::byte* meta,
                          float* out) {
  if (n % 64 != 0)
    return TurboFormat::decode(e, n, data, meta, 0, 1, out);  // codes of 2 bits fill no four words
  const float scale = widen_one(meta, 0);
  const Magnitudes& levels = kTurbo[e.bits - 1];
  const std::byte* signs = data + TurboFormat::signs_at(e, n);
  if (e.bits == 1) decode_signs(levels.twice[0] * scale, n, signs, out);
  if (e.bits == 2) decode_row(SignedLevels<2>{levels, nullptr}, RowScale{scale}, n, data, out);
  if (e.bits == 3) decode_row(SignedLevels<2, true>{levels, signs}, RowScale{scale}, n, data, out);
  if (e.bits == 4) decode_row(SignedLevels<4>{levels, nullptr}, RowScale{scale}, n, data, out);
  if (e.second) add_sketch(widen_one(meta, 1) * kSketchGain, n, data + TurboFormat::sketch_at(e, n), out);
}

// A row is a sum of words, eight floats each, which need no code of their own.
void decode_of(VqFormat, const Encoding& e, int n, const std::byte* data, const std::byte* meta, float* out) {
  VqFormat::decode(e, n, data, meta, 0, 1, out);
}

// ---- ggml's blocks ----

// The levels of elements i to i + 15.
template <class F>
HWY_INLINE hn::Vec<hn::Full128<int8_t>> levels_at(const std::byte* row, int i) {
  const hn::Full128<uint8_t> d;
  constexpr uint8_t kRaised = F::kBlocks.has_min ? 128 - F::kBlocks.middle : 128;
  const auto raised = hn::BitCast(d, load_raised_levels<F>(hn::Full128<int32_t>(), row, i / 4));
  return hn::BitCast(hn::Full128<int8_t>(), hn::Sub(raised, hn::Set(d, kRaised)));
}

// level * scale[0], + scale[1] where the format has a minimum.
template <class F, class D>
HWY_INLINE void store_elements(D d, hn::Vec<hn::Full128<int8_t>> levels, const float* scale, float* out) {
  const hn::RebindToSigned<D> di;
  const auto store_some = [&](auto some, float* to) KV_INLINE {
    auto x = hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, some)), hn::Set(d, scale[0]));
    if constexpr (F::kBlocks.has_min) x = hn::Add(x, hn::Set(d, scale[1]));
    hn::StoreU(x, d, to);
  };
  if constexpr (hn::MaxLanes(D()) == 16) {
    store_some(levels, out);
  } else {
    HWY_ALIGN int8_t bytes[16];
    hn::Store(levels, hn::Full128<int8_t>(), bytes);
    for (int i = 0; i < 16; i += static_cast<int>(hn::Lanes(d)))
      store_some(hn::LoadU(hn::Rebind<int8_t, D>(), bytes + i), out + i);
  }
}

// f16 numbers -> out [count].
HWY_INLINE void widen_halves(const std::byte* halves, int count, float* out) {
  const hn::CappedTag<float, 4> d;
  const hn::Rebind<uint16_t, decltype(d)> half;
  const int lanes = static_cast<int>(hn::Lanes(d));
  int i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(widen_half(d, hn::LoadU(half, reinterpret_cast<const uint16_t*>(halves) + i)), d, out + i);
  for (; i < count; ++i) out[i] = f16_to_f32(load<uint16_t>(halves, i));
}

template <size_t kIndex>
HWY_INLINE void decode_of(GgmlLevels<kIndex>, const Encoding&, int n, const std::byte* data,
                          const std::byte* meta, float* out) {
  using F = GgmlLevels<kIndex>;
  constexpr int kNumbers = F::kBlocks.meta_bytes() / 2;
  float scales[kMaxHeadDim / kGgmlBlock * kNumbers];
  widen_halves(meta, n / kGgmlBlock * kNumbers, scales);
  const hn::CappedTag<float, 16> d;
  const float* scale = scales;
  for (int i = 0; i < n; i += kGgmlBlock, scale += kNumbers) {
    store_elements<F>(d, levels_at<F>(data, i), scale, out + i);
    store_elements<F>(d, levels_at<F>(data, i + kHalfBlock), scale, out + i + kHalfBlock);
  }
}

void decode_levels(const Encoding& e, int head_dim, const std::byte* const* data,
                   const std::byte* const* meta, int count, float* out) {
  visit_format(LevelFormats(), e.format, [&](auto format) KV_ATTR {
    const auto rows = [&](auto n) KV_INLINE {
      for (int i = 0; i < count; ++i) decode_of(format, e, n, data[i], meta[i], out + int64_t{i} * n);
    };
    if (head_dim == 128) return rows(std::integral_constant<int, 128>());  // loops without a loop in them
    if (head_dim == 64) return rows(std::integral_constant<int, 64>());
    rows(head_dim);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#else
namespace kv::cpu::N_SCALAR {
void decode_levels(const Encoding& e, int head_dim, const std::byte* const* data,
                   const std::byte* const* meta, int count, float* out) {
  for (int i = 0; i < count; ++i)
    descriptor_of(e.format).decode(e, head_dim, data[i], meta[i], 0, 1, out + int64_t{i} * head_dim);
}
}  // namespace kv::cpu::N_SCALAR
#endif

#if HWY_ONCE
namespace kv::cpu {
HWY_EXPORT(decode_levels);
void decode_level_rows(const Encoding& e, int head_dim, const std::byte* const* data,
                       const std::byte* const* meta, int count, float* out) {
  HWY_DYNAMIC_DISPATCH(decode_levels)(e, head_dim, data, meta, count, out);
}
}  // namespace kv::cpu
#endif
