// Codes lie in words so that one shift brings consecutive elements' codes to the lowest bits of a vector's lanes
// (kernels/format/bits.h). A code of 2 or 4 bits then finds its magnitude among at most eight in registers and has its
// sign moved to the top; one of 8 bits becomes a binary16 by a shift.
#include "kernels/cpu/encode/decode_levels.h"

#include "kernels/cpu/targets.h"
#include "kernels/format/list.h"
#include "kernels/hadamard.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/encode/decode_levels.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc).
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/half-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Scales of a row, each of 2^shift elements.
struct RowScales {
  float scale[kMaxHeadDim / kNvBlock];
  int shift;
  float of(int i) const { return scale[i >> shift]; }
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
  Table(D d, const float* eight) : d_(d) {
    HWY_ALIGN float repeated[16];
    for (int i = 0; i < 16; ++i) repeated[i] = eight[i % 8];
    low_ = hn::Load(d, repeated);
    high_ = hn::Load(d, repeated + (kWide ? 0 : 4));
  }
  HWY_INLINE hn::Vec<D> at(hn::Vec<hn::RebindToSigned<D>> i) const {
    const hn::RebindToSigned<D> di;
    if constexpr (kWide) return hn::TableLookupLanes(low_, hn::IndicesFromVec(d_, i));
    const auto place = hn::IndicesFromVec(d_, hn::And(i, hn::Set(di, 3)));
    const auto is_high = hn::RebindMask(d_, hn::Gt(i, hn::Set(di, 3)));
    return hn::IfThenElse(is_high, hn::TableLookupLanes(high_, place), hn::TableLookupLanes(low_, place));
  }

 private:
  static constexpr bool kWide = hn::MaxLanes(D()) >= 8;
  D d_;
  hn::Vec<D> low_, high_;
};

// Codes of kWidth bits, the sign highest: or, with `signs`, magnitudes alone.
template <int kWidth>
struct SignedLevels {
  static constexpr int kBits = kWidth;
  const float* magnitudes;  // [8]
  const std::byte* signs;   // or null

  template <class D>
  struct Decoder {
    D d;
    Table<D> table;
    const std::byte* signs;
    template <class V>
    HWY_INLINE hn::Vec<D> operator()(V words, int i) const {
      const hn::RebindToUnsigned<D> du;
      const hn::RebindToSigned<D> di;
      const auto mask = hn::Set(du, signs ? (1u << kWidth) - 1u : (1u << (kWidth - 1)) - 1u);
      const auto magnitude = table.at(hn::BitCast(di, hn::And(words, mask)));
      const auto own = hn::And(hn::ShiftLeft<32 - kWidth>(words), hn::Set(du, 0x80000000u));
      const auto sign = signs ? signs_from(d, signs, i) : own;
      return hn::BitCast(d, hn::Xor(hn::BitCast(du, magnitude), sign));
    }
  };
  template <class D>
  Decoder<D> decoder(D d) const {
    return {d, Table<D>(d, magnitudes), signs};
  }
};

// FP8 in a binary16's places is the number divided by the power of two by which the biases differ.
template <Fp8 F>
struct Fp8Levels {
  static constexpr int kBits = 8;
  static constexpr float kFactor = F.mantissa_bits == 3 ? 0x1p8f : 1.0f;

  template <class D>
  struct Decoder {
    D d;
    template <class V>
    HWY_INLINE hn::Vec<D> operator()(V words, int) const {
      const hn::RebindToSigned<D> di;
      constexpr int kShift = 10 - F.mantissa_bits;
      const auto magnitude = hn::ShiftLeft<kShift>(hn::And(words, hn::Set(hn::RebindToUnsigned<D>(), 0x7fu)));
      const auto sign = hn::ShiftLeft<8>(hn::And(words, hn::Set(hn::RebindToUnsigned<D>(), 0x80u)));
      return finite_half(d, hn::BitCast(di, hn::Or(magnitude, sign)));
    }
  };
  template <class D>
  Decoder<D> decoder(D d) const {
    return {d};
  }
};

template <class D, class Levels>
HWY_NOINLINE void decode_words(D d, const Levels& levels, const RowScales& scales, int words,
                               const std::byte* data, float* out) {
  const hn::RebindToUnsigned<D> du;
  const auto decode = levels.decoder(d);
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int w = 0; w < words; w += lanes) {
    const auto some = hn::LoadU(du, reinterpret_cast<const uint32_t*>(data) + w);
    for (int slot = 0; slot < 32 / Levels::kBits; ++slot) {
      const int i = slot * words + w;
      const auto x = decode(hn::ShiftRightSame(some, slot * Levels::kBits), i);
      hn::StoreU(hn::Mul(x, hn::Set(d, scales.of(i))), d, out + i);
    }
  }
}

template <class Levels>
void decode_row(const Levels& levels, const RowScales& scales, int head_dim, const std::byte* data,
                float* out) {
  const int words = head_dim * Levels::kBits / 32;
  const auto decode = [&](auto d) KV_ATTR { decode_words(d, levels, scales, words, data, out); };
  const hn::CappedTag<float, 16> full;
  if (words % static_cast<int>(hn::Lanes(full)) == 0) return decode(full);
  if (words % 8 == 0) return decode(hn::CappedTag<float, 8>());
  decode(hn::CappedTag<float, 4>());
}

// `each` with the signs of a plane.
void decode_signs(float each, int head_dim, const std::byte* signs, float* out) {
  const hn::CappedTag<float, 16> d;
  const auto magnitude = hn::BitCast(hn::RebindToUnsigned<decltype(d)>(), hn::Set(d, each));
  for (int i = 0; i < head_dim; i += static_cast<int>(hn::Lanes(d)))
    hn::StoreU(hn::BitCast(d, hn::Xor(magnitude, signs_from(d, signs, i))), d, out + i);
}

template <Fp8 F>
void decode_of(MxFormat<MxFp8Element<F>>, const Encoding&, int n, const std::byte* data,
               const std::byte* meta, float* out) {
  RowScales scales{.scale = {}, .shift = 5};
  for (int b = 0; b < n / kMxBlock; ++b)
    scales.scale[b] = e8m0_to_f32(load<uint8_t>(meta, b)) * Fp8Levels<F>::kFactor;
  decode_row(Fp8Levels<F>(), scales, n, data, out);
}

void decode_of(MxFp4Format, const Encoding&, int n, const std::byte* data, const std::byte* meta,
               float* out) {
  RowScales scales{.scale = {}, .shift = 5};
  for (int b = 0; b < n / kMxBlock; ++b) scales.scale[b] = e8m0_to_f32(load<uint8_t>(meta, b));
  decode_row(SignedLevels<4>{kE2m1Magnitudes, nullptr}, scales, n, data, out);
}

void decode_of(NvFp4Format, const Encoding& e, int n, const std::byte* data, const std::byte* meta,
               float* out) {
  const float row = NvFp4Format::row_scale(e, meta);
  RowScales scales{.scale = {}, .shift = 4};
  for (int b = 0; b < n / kNvBlock; ++b)
    scales.scale[b] = fp8_to_f32<kE4M3>(load<uint8_t>(meta + NvFp4Format::scales_at(e), b)) * row;
  decode_row(SignedLevels<4>{kE2m1Magnitudes, nullptr}, scales, n, data, out);
}

void add_sketch(float each, int n, const std::byte* signs, float* out) {
  HWY_ALIGN float sketched[kMaxHeadDim];
  decode_signs(each, n, signs, sketched);
  hadamard_row(sketched, n, sketched);
  for (int i = 0; i < n; ++i)
    out[i] += std::bit_cast<float>(std::bit_cast<uint32_t>(sketched[i]) ^ kSketchFlips[i]);
}

void decode_of(TurboFormat, const Encoding& e, int n, const std::byte* data, const std::byte* meta,
               float* out) {
  if (n % 64 != 0)
    return TurboFormat::decode(e, n, data, meta, 0, 1, out);  // codes of 2 bits fill no four words
  const float scale = f16_to_f32(load<uint16_t>(meta, 0));
  const RowScales scales{.scale = {scale}, .shift = 31};
  const float* levels = kTurboLevels[e.bits - 1];
  const std::byte* signs = data + TurboFormat::signs_at(e, n);
  if (e.bits == 1) decode_signs(levels[0] * scale, n, signs, out);
  if (e.bits == 2) decode_row(SignedLevels<2>{levels, nullptr}, scales, n, data, out);
  if (e.bits == 3) decode_row(SignedLevels<2>{levels, signs}, scales, n, data, out);
  if (e.bits == 4) decode_row(SignedLevels<4>{levels, nullptr}, scales, n, data, out);
  if (e.second)
    add_sketch(f16_to_f32(load<uint16_t>(meta, 1)) * kSketchGain, n, data + TurboFormat::sketch_at(e, n),
               out);
}

void decode_levels(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta,
                   float* out) {
  visit_format(LevelFormats(), e.format,
               [&](auto format) KV_ATTR { decode_of(format, e, head_dim, data, meta, out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#else
namespace kv::cpu::N_SCALAR {
void decode_levels(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta,
                   float* out) {
  descriptor_of(e.format).decode(e, head_dim, data, meta, 0, 1, out);
}
}  // namespace kv::cpu::N_SCALAR
#endif

#if HWY_ONCE
namespace kv::cpu {
HWY_EXPORT(decode_levels);
// Units of these formats are rows.
void decode_levels(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta, int, int,
                   float* out) {
  HWY_DYNAMIC_DISPATCH(decode_levels)(e, head_dim, data, meta, out);
}
}  // namespace kv::cpu
#endif
