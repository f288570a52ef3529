// Each type of block in code of its own, compiled once a target.
#include "kernels/cpu/weights/expand.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/cpu/encode/convert.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/targets.h"
#include "kernels/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/weights/expand.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/cpu/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE uint8_t byte_at(const std::byte* from) { return std::to_integer<uint8_t>(*from); }
HWY_INLINE uint16_t bits_at(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

// How codes are taken apart and become floats. Compiled targets have their own (VectorCodes), since compilers vectorise none of it.
struct PlainCodes {
  static HWY_INLINE float half_at(const std::byte* from) { return f16_to_f32(bits_at(from)); }
  // The lower, then the upper 4 bits of kBytes bytes.
  template <int kBytes>
  static HWY_INLINE void halves(const std::byte* from, uint8_t* codes) {
    for (int i = 0; i < kBytes; ++i) {
      codes[i] = byte_at(from + i) & 15;
      codes[i + kBytes] = byte_at(from + i) >> 4;
    }
  }
  // To 32 codes, above their 4 bits, those of `mask` of as many bytes.
  static HWY_INLINE void add_bits(const std::byte* from, int shift, uint8_t mask, uint8_t* codes) {
    for (int i = 0; i < 32; ++i)
      codes[i] = static_cast<uint8_t>(codes[i] | (byte_at(from + i) >> shift & mask) << 4);
  }
  // A `minimum` of -0 changes no bit.
  template <int kCount>
  static HWY_INLINE void expand(const uint8_t* codes, float offset, float scale, float minimum, float* to) {
    for (int i = 0; i < kCount; ++i) to[i] = scale * (static_cast<float>(codes[i]) - offset) + minimum;
  }
};

#if HWY_TARGET == HWY_SCALAR
using VectorCodes = PlainCodes;
#else
struct VectorCodes {
  using Bytes = hn::FixedTag<uint8_t, 16>;
  using Pairs = hn::Repartition<uint16_t, Bytes>;
  static HWY_INLINE float half_at(const std::byte* from) {
    return hn::GetLane(
        widen_half(hn::FixedTag<float, 4>(), hn::Set(hn::FixedTag<uint16_t, 4>(), bits_at(from))));
  }
  static HWY_INLINE hn::Vec<Bytes> load(const void* from) {
    return hn::LoadU(Bytes(), static_cast<const uint8_t*>(from));
  }

  template <int kBytes>
  static HWY_INLINE void halves(const std::byte* from, uint8_t* codes) {
    for (int i = 0; i < kBytes; i += 16) {
      const auto both = load(from + i);
      hn::StoreU(hn::And(both, hn::Set(Bytes(), 15)), Bytes(), codes + i);
      hn::StoreU(hn::ShiftRight<4>(both), Bytes(), codes + kBytes + i);
    }
  }
  static HWY_INLINE void add_bits(const std::byte* from, int shift, uint8_t mask, uint8_t* codes) {
    for (int i = 0; i < 32; i += 16) {
      const auto shifted = hn::ShiftRightSame(hn::BitCast(Pairs(), load(from + i)), shift);
      const auto bits = hn::And(hn::BitCast(Bytes(), shifted), hn::Set(Bytes(), mask));
      hn::StoreU(hn::Or(load(codes + i), hn::ShiftLeft<4>(bits)), Bytes(), codes + i);
    }
  }
  template <int kCount>
  static HWY_INLINE void expand(const uint8_t* codes, float offset, float scale, float minimum, float* to) {
    const hn::CappedTag<float, 16> d;
    const hn::Rebind<uint8_t, decltype(d)> narrow;
    const hn::Rebind<int32_t, decltype(d)> wide;
    for (int i = 0; i < kCount; i += static_cast<int>(hn::Lanes(d))) {
      const auto code = hn::ConvertTo(d, hn::PromoteTo(wide, hn::LoadU(narrow, codes + i)));
      const auto scaled = hn::Mul(hn::Set(d, scale), hn::Sub(code, hn::Set(d, offset)));
      hn::StoreU(hn::Add(scaled, hn::Set(d, minimum)), d, to + i);
    }
  }
};
#endif

// To 32 codes of 4 bits a fifth bit each, of 4 bytes; eight codes at a time.
HWY_INLINE void add_fifths(const std::byte* from, uint8_t* codes) {
  for (int i = 0; i < 4; ++i, codes += 8) {
    const uint64_t own = byte_at(from + i) * 0x0101010101010101u & 0x8040201008040201u;  // bit i in byte i
    uint64_t eight;
    std::memcpy(&eight, codes, sizeof eight);
    eight |= ((own + 0x7f7f7f7f7f7f7f7fu) & 0x8080808080808080u) >> 3;
    std::memcpy(codes, &eight, sizeof eight);
  }
}

// 32 codes of 4 or 5 bits after an f16 scale. Q4_0, Q5_0: they lie around 0. Q4_1, Q5_1: after an f16 minimum too.
template <class Codes, int kBits, bool kMinimum>
HWY_INLINE void block_of_32(const std::byte* block, float* to) {
  const std::byte* packed = block + (kMinimum ? 4 : 2);
  uint8_t codes[32];
  Codes::template halves<16>(packed + (kBits == 5 ? 4 : 0), codes);
  if constexpr (kBits == 5) add_fifths(packed, codes);
  Codes::template expand<32>(codes, kMinimum ? 0.0f : static_cast<float>(1 << (kBits - 1)),
                             Codes::half_at(block), kMinimum ? Codes::half_at(block + 2) : -0.0f, to);
}

template <class Codes>
HWY_INLINE void q8_0_block(const std::byte* block, float* to) {
  const float scale = Codes::half_at(block);
  for (int i = 0; i < 32; ++i)
    to[i] = scale * static_cast<float>(static_cast<int8_t>(byte_at(block + 2 + i)));
}

// Q4_K, Q5_K: f16 scales of 8 scales and of 8 minimums, those in 6 bits, 12 bytes; then 32 values under each.
template <class Codes, int kBits>
HWY_INLINE void k_block(const std::byte* block, float* to) {
  const float scale = Codes::half_at(block), scale_of_minimums = Codes::half_at(block + 2);
  const std::byte *packed = block + 4, *fifths = block + 16, *fours = fifths + (kBits == 5 ? 32 : 0);
  uint8_t codes[64];  // of two parts
  for (int part = 0; part < 8; ++part) {
    const int low = part % 4, s = byte_at(packed + low), m = byte_at(packed + 4 + low),
              both = byte_at(packed + 8 + low);
    const int six = part < 4 ? s & 63 : (both & 15) | (s >> 2 & 48),
              least = part < 4 ? m & 63 : both >> 4 | (m >> 2 & 48);
    const float d = scale * static_cast<float>(six), minimum = scale_of_minimums * static_cast<float>(least);
    uint8_t* own = codes + 32 * (part % 2);
    if (part % 2 == 0) Codes::template halves<32>(fours + 16 * part, codes);
    if constexpr (kBits == 5) Codes::add_bits(fifths, part, 1, own);
    Codes::template expand<32>(own, 0.0f, d, -minimum, to + 32 * part);
  }
}

// Q6_K: codes in 4 and 2 bits, a scale of 8 bits for every 16, and an f16 scale of those.
template <class Codes>
HWY_INLINE void q6_k_block(const std::byte* block, float* to) {
  const float scale = Codes::half_at(block + 208);
  uint8_t codes[128];  // of parts 0, 2, 1 and 3 of four
  for (int part = 0; part < 8; ++part) {
    const std::byte *fours = block + 64 * (part / 4), *twos = block + 128 + 32 * (part / 4);
    if (part % 4 == 0) {
      Codes::template halves<32>(fours, codes);
      Codes::template halves<32>(fours + 32, codes + 64);
    }
    uint8_t* own = codes + 64 * (part % 2) + 32 * (part % 4 / 2);
    Codes::add_bits(twos, 2 * (part % 4), 3, own);
    for (int half = 0; half < 2; ++half) {
      const float d = scale * static_cast<float>(static_cast<int8_t>(byte_at(block + 192 + 2 * part + half)));
      Codes::template expand<16>(own + 16 * half, 32.0f, d, -0.0f, to + 32 * part + 16 * half);
    }
  }
}

// `count` values of a type of blocks.
template <auto kBlock>
HWY_INLINE void expand_each(const std::byte* from, const WeightLayout& layout, int64_t count, float* to) {
  for (int64_t at = 0; at < count; at += layout.values, from += layout.bytes) kBlock(from, to + at);
}

template <class Codes>
HWY_INLINE void expand_all(const std::byte* from, WeightType type, int64_t count, float* to) {
  const WeightLayout& layout = layout_of(type);
  switch (type) {
    case WeightType::kQ4_0:
      return expand_each<block_of_32<Codes, 4, false>>(from, layout, count, to);
    case WeightType::kQ5_0:
      return expand_each<block_of_32<Codes, 5, false>>(from, layout, count, to);
    case WeightType::kQ4_1:
      return expand_each<block_of_32<Codes, 4, true>>(from, layout, count, to);
    case WeightType::kQ5_1:
      return expand_each<block_of_32<Codes, 5, true>>(from, layout, count, to);
    case WeightType::kQ8_0:
      return expand_each<q8_0_block<Codes>>(from, layout, count, to);
    case WeightType::kQ4K:
      return expand_each<k_block<Codes, 4>>(from, layout, count, to);
    case WeightType::kQ5K:
      return expand_each<k_block<Codes, 5>>(from, layout, count, to);
    case WeightType::kQ6K:
      return expand_each<q6_k_block<Codes>>(from, layout, count, to);
    default:
      return;
  }
}

void expand_plain(const std::byte* from, WeightType type, int64_t count, float* to) {
  expand_all<PlainCodes>(from, type, count, to);
}
void expand_blocks(const std::byte* from, WeightType type, int64_t count, float* to) {
  expand_all<VectorCodes>(from, type, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv::cpu {

HWY_EXPORT(expand_blocks);

namespace {

constexpr std::array<WeightLayout, 11> kLayouts{{{"F32", 1, 4},
                                                 {"F16", 1, 2},
                                                 {"BF16", 1, 2},
                                                 {"Q4_0", 32, 18},
                                                 {"Q4_1", 32, 20},
                                                 {"Q5_0", 32, 22},
                                                 {"Q5_1", 32, 24},
                                                 {"Q8_0", 32, 34},
                                                 {"Q4_K", 256, 144},
                                                 {"Q5_K", 256, 176},
                                                 {"Q6_K", 256, 210}}};

}  // namespace

const WeightLayout& layout_of(WeightType type) { return kLayouts[static_cast<size_t>(type)]; }

std::optional<WeightType> weight_type(std::string_view name) {
  const auto found = std::ranges::find(kLayouts, name, &WeightLayout::name);
  if (found == kLayouts.end()) return std::nullopt;
  return static_cast<WeightType>(found - kLayouts.begin());
}

void expand_weights(const std::byte* from, WeightType type, int64_t count, float* to) {
  if (type == WeightType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else if (type == WeightType::kF16) {
    convert_f16_to_f32(from, to, count);
  } else if (type == WeightType::kBf16) {
    for (int64_t i = 0; i < count; ++i) {
      uint16_t upper;  // copied, since nothing aligns the data of a file
      std::memcpy(&upper, from + 2 * i, sizeof upper);
      to[i] = bf16_to_f32(upper);
    }
  } else if (isa_is_scalar()) {
    HWY_STATIC_DISPATCH(expand_plain)(from, type, count, to);
  } else {
    HWY_DYNAMIC_DISPATCH(expand_blocks)(from, type, count, to);
  }
}

}  // namespace kv::cpu
#endif
