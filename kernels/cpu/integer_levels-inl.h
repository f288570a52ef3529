// Rows of small integers (kernels/format/ggml_levels.h) as bytes in the order of elements. Private to kernels/cpu; compiled once
// a target.
#if defined(KV_INTEGER_LEVELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_INTEGER_LEVELS_INL_H_
#undef KV_INTEGER_LEVELS_INL_H_
#else
#define KV_INTEGER_LEVELS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"
#include "kernels/format/bytes.h"
#include "kernels/format/ggml_levels.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// iq4_nl's levels + 128.
alignas(16) static constexpr auto kRaisedLevels = [] {
  std::array<uint8_t, 16> raised{};
  for (size_t i = 0; i < raised.size(); ++i) raised[i] = static_cast<uint8_t>(kIq4Levels[i] + 128);
  return raised;
}();

// In even 128-bit blocks `low`, in odd ones `high`; a vector of one block is that of half `half` of a block of elements.
template <class D, class V>
HWY_INLINE V by_halves([[maybe_unused]] D d, V low, V high, [[maybe_unused]] int half) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) > 16) return hn::OddEvenBlocks(high, low);
  return half == 0 ? low : high;
}

// 16 bytes in every 128-bit block, of one block of elements; or, in vectors of 512 bits, of one and the next.
template <class D>
HWY_INLINE hn::Vec<D> load_twice(D d, const std::byte* at, [[maybe_unused]] int apart) {
  const auto* from = reinterpret_cast<const uint8_t*>(at);
  if constexpr (hn::MaxLanes(D()) == 64) {
    const hn::Half<D> half;
    return hn::Combine(d, hn::LoadDup128(half, from + apart), hn::LoadDup128(half, from));
  } else {
    return hn::LoadDup128(d, from);
  }
}

// The same of 8 bytes, in each half of a 128-bit block.
template <class D>
HWY_INLINE hn::Vec<D> load_four_times(D d, const std::byte* at, [[maybe_unused]] int apart) {
  const hn::Repartition<uint64_t, D> d64;
  if constexpr (hn::MaxLanes(D()) == 64) {
    const hn::Half<decltype(d64)> half;
    return hn::BitCast(d, hn::Combine(d64, hn::Set(half, load<uint64_t>(at + apart, 0)),
                                      hn::Set(half, load<uint64_t>(at, 0))));
  } else {
    return hn::BitCast(d, hn::Set(d64, load<uint64_t>(at, 0)));
  }
}

// 16 where a code's fifth bit is set.
template <class D>
HWY_INLINE hn::Vec<D> fifth_bits(D d, const std::byte* stored, [[maybe_unused]] int apart,
                                 [[maybe_unused]] int half) {
  uint8_t bits[8] = {};
  if constexpr (hn::MaxLanes(D()) == 16) {
    std::memcpy(bits, stored + 2 * half, 2);
  } else {
    std::memcpy(bits, stored, 4);
    if constexpr (hn::MaxLanes(D()) == 64) std::memcpy(bits + 4, stored + apart, 4);
  }
  return hn::IfThenElseZero(hn::LoadMaskBits(d, bits), hn::Set(d, uint8_t{16}));
}

// 16 times the two bits above the nibbles.
template <class D>
HWY_INLINE hn::Vec<D> upper_bits(D d, const std::byte* stored, int apart, int half) {
  const hn::Repartition<uint64_t, D> d64;
  const auto all = hn::BitCast(d64, load_four_times(d, stored, apart));
  const auto fours =
      hn::BitCast(d, hn::OddEven(hn::ShiftRight<4>(all), all));  // in the lower halves of bytes
  const hn::Repartition<uint16_t, D> d16;
  const auto low = hn::ShiftLeft<4>(hn::BitCast(d16, hn::And(fours, hn::Set(d, uint8_t{3}))));
  const auto high = hn::ShiftLeft<2>(hn::BitCast(d16, hn::And(fours, hn::Set(d, uint8_t{12}))));
  return hn::BitCast(d, by_halves(d16, low, high, half));
}

// The words from `word` on, a multiple of their number, in vectors DI of 4, 8 or 16: four elements each, levels + 128 or, where a
// block has a minimum, 128 + code - middle code.
template <class F, class DI>
HWY_INLINE hn::Vec<DI> load_raised_levels(DI di, const std::byte* row, int word) {
  static_assert(hn::MaxLanes(DI()) <= 16);
  const hn::Repartition<uint8_t, DI> d;
  const hn::Repartition<uint16_t, DI> d16;
  constexpr LevelBlocks kOf = F::kBlocks;
  constexpr int kBytes = kOf.block_bytes();
  const std::byte *block = row + word / 8 * kBytes, *high = block + kOf.high_at();
  const int half = word / 4 % 2;
  const auto pairs = hn::BitCast(d16, load_twice(d, block + kOf.nibbles_at, kBytes));
  auto codes = hn::BitCast(d, by_halves(d16, pairs, hn::ShiftRight<4>(pairs), half));
  codes = hn::And(codes, hn::Set(d, uint8_t{15}));
  if constexpr (kOf.bits == 5) codes = hn::Or(codes, fifth_bits(d, high, kBytes, half));
  if constexpr (kOf.bits == 6) codes = hn::Or(codes, upper_bits(d, high, kBytes, half));
  if constexpr (kOf.has_table)
    return hn::BitCast(di, hn::TableLookupBytes(hn::LoadDup128(d, kRaisedLevels.data()), codes));
  return hn::BitCast(di, hn::Add(codes, hn::Set(d, uint8_t{128 - kOf.middle})));
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
