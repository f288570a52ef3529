// Shared by the vector encoders: the extremes of four rows at once, and codes to bytes and words. Private to
// kernels/cpu; compiled once a target.
//
// A row's length is `N n`: an int, or a constant for the common ones, with which loops unroll.
#if defined(KV_ENCODE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_ENCODE_LANES_INL_H_
#undef KV_ENCODE_LANES_INL_H_
#else
#define KV_ENCODE_LANES_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/encode/prefetch.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/format/bits.h"
#include "kernels/format/list.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <int kN>
using Length = std::integral_constant<int, kN>;

template <class D>
HWY_INLINE constexpr int lanes_of(D /*d*/) {
  return static_cast<int>(hn::MaxLanes(D()));
}

template <class D, class V>
HWY_INLINE hn::Vec<Bits<D>> magnitude_of(D, V x) {
  const Bits<D> di;
  return hn::And(hn::BitCast(di, x), hn::Set(di, 0x7fffffff));
}

constexpr int kFour = 4;
using Four = hn::CappedTag<float, kFour>;  // a lane each of four rows or blocks
using FourPlaces = const float* const (&)[kFour];

// Up to four units of a row each.
class RowJobs {
 public:
  RowJobs(std::span<const UnitJob> now, std::span<const UnitJob> next, int64_t data_bytes)
      : now_(now), next_(next), data_bytes_(data_bytes) {}
  size_t size() const { return now_.size(); }
  // The i-th, while places of later ones are prefetched: one at a time, or they fill the buffers that rows need.
  const UnitJob& take(size_t i) const {
    if (i < next_.size()) prefetch(next_[i], data_bytes_);
    return now_[i];
  }
  const UnitJob& operator[](size_t i) const { return now_[i]; }

 private:
  std::span<const UnitJob> now_, next_;
  int64_t data_bytes_;
};

// ---- extremes ----

// The largest magnitude, lane by lane; as integers, which order NaN and infinity above all.
template <class D, class N>
HWY_INLINE hn::Vec<Bits<D>> largest_lanes(D d, N n, const float* x) {
  auto largest = magnitude_of(d, hn::LoadU(d, x));
  for (int i = lanes_of(d); i < n; i += lanes_of(d))
    largest = hn::Max(largest, magnitude_of(d, hn::LoadU(d, x + i)));
  return largest;
}

// The largest magnitude of n numbers at each place. Rows are read in their order, as the hardware prefetcher
// expects: compilers evaluate a call's arguments from the last one, and cold rows then took twice as long.
template <class D, class N>
HWY_INLINE hn::Vec<Bits<Four>> largest_of_four(D d, N n, FourPlaces x) {
  const auto a = largest_lanes(d, n, x[0]), b = largest_lanes(d, n, x[1]), c = largest_lanes(d, n, x[2]),
             e = largest_lanes(d, n, x[3]);
  return across_lanes(Bits<D>(), a, b, c, e, MaxOf());
}

template <class V>
struct Extremes {
  V low, high, probe;  // the probe is NaN where a number is not finite
};

// The probe's products go to units of their own; a sum would have to wait for those which find the extremes.
template <class D, class N>
HWY_INLINE Extremes<hn::Vec<D>> extreme_lanes(D d, N n, const float* x) {
  auto low = hn::LoadU(d, x), high = low, probe = hn::Mul(low, hn::Zero(d));
  for (int i = lanes_of(d); i < n; i += lanes_of(d)) {
    const auto y = hn::LoadU(d, x + i);
    low = hn::Min(low, y);
    high = hn::Max(high, y);
    probe = hn::MulAdd(y, hn::Zero(d), probe);
  }
  return {low, high, probe};
}

template <class D, class V>
HWY_INLINE bool all_finite(D d, V probe) {
  return hn::AllTrue(d, hn::Eq(probe, probe));
}

struct FourExtremes {
  hn::Vec<Four> low, high;
  bool finite;
};

template <class D, class N>
HWY_INLINE FourExtremes extremes_of_four(D d, N n, FourPlaces x) {
  const auto a = extreme_lanes(d, n, x[0]), b = extreme_lanes(d, n, x[1]), c = extreme_lanes(d, n, x[2]),
             e = extreme_lanes(d, n, x[3]);
  return {across_lanes(d, a.low, b.low, c.low, e.low, MinOf()),
          across_lanes(d, a.high, b.high, c.high, e.high, MaxOf()),
          all_finite(d, hn::Add(hn::Add(a.probe, b.probe), hn::Add(c.probe, e.probe)))};
}

// ---- codes to bytes ----

// In each 128 bits of `words`, `shuffle` brings together four bytes of each of four vectors; here the vectors
// come one behind the other.
template <class DI, class V>
HWY_INLINE V in_order(DI di, V words, const uint8_t* shuffle) {
  constexpr int kLanes = lanes_of(DI()), kBlocks = kLanes / 4;
  const hn::Repartition<uint8_t, DI> d8;
  words = hn::BitCast(di, hn::TableLookupBytes(hn::BitCast(d8, words), hn::LoadDup128(d8, shuffle)));
  if constexpr (kBlocks == 1) {
    return words;
  } else {
    HWY_ALIGN int32_t order[kLanes];
    for (int i = 0; i < kLanes; ++i) order[i] = i % kBlocks * 4 + i / kBlocks;
    return hn::TableLookupLanes(words, hn::SetTableIndices(di, order));
  }
}

// Byte order after packing four vectors, whose lanes lie one above the other in a word.
HWY_ALIGN constexpr uint8_t kFromWords[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
// Byte order after packing in pairs: the 16-bit lanes of the first two vectors below those of the other two.
HWY_ALIGN constexpr uint8_t kFromPairs[16] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};

// Bytes of n elements: fewer instructions than narrowing each vector takes. `code` gives the vector of codes
// that begins at an element, plus `excess`.
template <class D, class N, class Code>
HWY_INLINE void store_bytes(D d, N n, const Code& code, uint32_t excess, std::byte* out) {
  const Bits<D> di;
  constexpr int kLanes = lanes_of(D());
  const auto excesses = hn::Set(di, static_cast<int32_t>(excess * 0x01010101u));
  int i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    auto word = hn::Add(hn::ShiftLeft<8>(code(d, i + 3 * kLanes)), code(d, i + 2 * kLanes));
    word = hn::Add(hn::ShiftLeft<8>(word), code(d, i + kLanes));
    word = hn::Add(hn::ShiftLeft<8>(word), code(d, i));
    hn::StoreU(in_order(di, hn::Sub(word, excesses), kFromWords), di, reinterpret_cast<int32_t*>(out + i));
  }
  const hn::Rebind<uint8_t, D> narrow;
  for (; i < n; i += kLanes) {
    const auto byte = hn::Sub(code(d, i), hn::Set(di, static_cast<int32_t>(excess)));
    hn::StoreU(hn::DemoteTo(narrow, byte), narrow, reinterpret_cast<uint8_t*>(out) + i);
  }
}

// ---- codes to words ----

// A number that moves the last place of a sum to 1, so that the sum's lowest bits are the nearest integer:
// see nearest_even(). Its own bits and what else a code is to be above stay in the sum until a word is full.
constexpr float kAlign = 0x1.8p23f;
constexpr uint32_t kAlignBits = 0x4b400000u;

// A row's words may fill but a part of a vector. The codes of consecutive elements in a vector then belong to
// kFold slots: they are packed kFold times as far apart as they are to lie, and the vector's halves put into
// each other's gaps.
template <int kBits, int kFold, class DI, class V>
HWY_INLINE void store_folded(DI di, V words, std::byte* packed) {
  if constexpr (kFold == 1) {
    hn::StoreU(words, di, reinterpret_cast<int32_t*>(packed));
  } else {
    const hn::Half<DI> half;
    const auto upper = hn::ShiftLeft<kBits * kFold / 2>(hn::UpperHalf(half, words));
    store_folded<kBits, kFold / 2>(half, hn::Or(hn::LowerHalf(half, words), upper), packed);
  }
}

// The excess of a word whose slots, kDistance bits apart, each hold a code that is too large by `excess`.
template <int kDistance>
constexpr uint32_t in_all_slots(uint32_t excess) {
  return excess * static_cast<uint32_t>((uint64_t{1} << 32) / ((1u << kDistance) - 1));
}

// A row's codes as words of interleaved codes. `Sums` gives, for elements i on, the bits of (code - offset) +
// kAlign.
template <int kBits, int kFold, class D, class N, class Sums>
HWY_INLINE void pack_words(D d, N n, const Sums& sums, uint32_t offset, std::byte* packed) {
  constexpr int kDistance = kBits * kFold, kSlots = 32 / kDistance;
  const Bits<D> di;
  const int words = kDistance * n / 32;
  const auto excess = hn::Set(di, static_cast<int32_t>(in_all_slots<kDistance>(kAlignBits - offset)));
  for (int w = 0; w < words; w += lanes_of(d)) {
    auto word = sums(d, (kSlots - 1) * words + w);
    for (int slot = kSlots - 2; slot >= 0; --slot)
      word = hn::Add(hn::ShiftLeft<kDistance>(word), sums(d, slot * words + w));
    store_folded<kBits, kFold>(di, hn::Sub(word, excess), packed + 4 * w);
  }
}

// Rows whose words fill no vectors, and codes that are packed sequentially, by the scalar packer.
template <class D, class Sums>
void pack_others(D d, int bits, int n, const Sums& sums, uint32_t offset, std::byte* packed) {
  HWY_ALIGN int32_t wide[kMaxHeadDim];
  uint16_t codes[kMaxHeadDim];
  for (int i = 0; i < n; i += lanes_of(d)) hn::StoreU(sums(d, i), Bits<D>(), wide + i);
  for (int i = 0; i < n; ++i)
    codes[i] = static_cast<uint16_t>(static_cast<uint32_t>(wide[i]) - kAlignBits + offset);
  pack_codes(bits, n, codes, packed);
}

// Words of a row whose length is no constant, as many at a time as divide their number.
template <int kBits, class Sums>
void pack_any_length(int n, const Sums& sums, uint32_t offset, std::byte* packed) {
  const int words = kBits * n / 32;
  const hn::CappedTag<float, 16> d16;
  const hn::CappedTag<float, 8> d8;
  const hn::CappedTag<float, 4> d4;
  if (words % lanes_of(d16) == 0) return pack_words<kBits, 1>(d16, n, sums, offset, packed);
  if (words % lanes_of(d8) == 0) return pack_words<kBits, 1>(d8, n, sums, offset, packed);
  if (words % lanes_of(d4) == 0) return pack_words<kBits, 1>(d4, n, sums, offset, packed);
  pack_others(d8, kBits, n, sums, offset, packed);
}

// How many slots a vector of codes covers.
template <int kBits, class D, class N>
constexpr int fold_of() {
  return std::max(1, 32 * static_cast<int>(hn::MaxLanes(D())) / (kBits * N::value));
}

template <int kBits, class D, class N, class Sums>
HWY_INLINE void pack_interleaved(D d, N n, const Sums& sums, uint32_t offset, std::byte* packed) {
  if constexpr (std::is_same_v<N, int>) {
    pack_any_length<kBits>(n, sums, offset, packed);
  } else {
    pack_words<kBits, fold_of<kBits, D, N>()>(d, n, sums, offset, packed);
  }
}

template <class D, class N, class Sums>
HWY_INLINE void pack_row(D d, int bits, N n, const Sums& sums, uint32_t offset, std::byte* packed) {
  if (bits == 8 && is_interleaved(8, n)) return pack_interleaved<8>(d, n, sums, offset, packed);
  if (bits == 4 && is_interleaved(4, n)) return pack_interleaved<4>(d, n, sums, offset, packed);
  if (bits == 2 && is_interleaved(2, n)) return pack_interleaved<2>(d, n, sums, offset, packed);
  pack_others(hn::CappedTag<float, 8>(), bits, n, sums, offset, packed);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
