// Integer codes in vector registers. Attention never decodes them: queries and weights become 16-bit integers,
// products are summed exactly in 32 bits, and scales are applied to sums.
//
//   score   scale * sum_d q[d] c[d]          q as 16 bits, once a task; with a scale a channel, which differs from
//                                            d to d, scale[d] goes into q once a unit
//   value   sum_j (p[j] scale[j]) c[j][d]    p[j] scale[j] as 16 bits, once a tile
//
// Codes are taken as unsigned, and their middle is taken off the sums. Whatever is rounded is rounded to 1/32767 of
// the largest of its kind, far below the codes' own step of at best 1/255.
//
// Vectors hold 32-bit words of codes. Shifting and masking a word as two 16-bit halves gives *planes* of codes in
// 16-bit lanes, ready for the multiply-add of neighbouring 16-bit lanes (vpmaddwd, vpdpwssd). A word of 4-bit codes,
// slots 0 … 7 from the lowest bits up, has 4 planes:
//
//   bits     31…28 27…24 23…20 19…16 | 15…12 11…8  7…4   3…0
//   slot       7     6     5     4   |   3     2     1     0
//   plane 0                      4   |                     0        plane p: slots p and p + 4
//   plane 3    7                     |   3
//
// Which element of the row lies in a slot is the layout's: bits.h for interleaved codes, F::element() for formats
// with blocks. Private to kernels/cpu; compiled once a target.
#if defined(KV_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_CODES_INL_H_
#undef KV_CODES_INL_H_
#else
#define KV_CODES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include <hwy/highway.h>

#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/attention/tile-inl.h"
#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/unroll-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <int kBits>
constexpr int kPlanes = 16 / kBits;
template <int kBits>
constexpr int kSlots = 32 / kBits;
template <int kBits>
constexpr int32_t kMiddle = 1 << (kBits - 1);

inline int words_of(int bits, int head_dim) { return head_dim * bits / 32; }

// sum + the products of the 16-bit lanes, added in pairs.
template <class DI, class V16, class V32>
HWY_INLINE V32 add_products([[maybe_unused]] DI di, V16 a, V16 b, V32 sum) {
#if HWY_TARGET == HWY_AVX3_DL
  // Not the intrinsic: GCC 12 copies its sums to and from vectors of another type, until there are more of them than
  // registers.
  if constexpr (hn::MaxLanes(DI()) == 16) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "vm"(b.raw));
    return sum;
  }
#endif
  V32 other = hn::Zero(di);
  const V32 first = hn::ReorderWidenMulAccumulate(di, a, b, sum, other);
  return hn::RearrangeToOddPlusEven(first, other);
}

// Plane kPlane of words: codes of kBits in 16-bit lanes.
template <int kBits, int kPlane, class D16>
HWY_INLINE hn::Vec<D16> plane(D16 d, hn::Vec<D16> words) {
  const hn::RebindToUnsigned<D16> du;
  const auto shifted = hn::ShiftRight<kBits * kPlane>(hn::BitCast(du, words));
  if constexpr (kBits * (kPlane + 1) == 16) return hn::BitCast(d, shifted);
  return hn::BitCast(d, hn::And(shifted, hn::Set(du, (1u << kBits) - 1u)));
}

// x * scale rounded to a 16-bit integer, in the low half of each lane: the low bits of a float that much larger.
// Cheaper than a conversion, which must mind what is out of range.
constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23
template <class DF>
HWY_INLINE auto rounded_bits(DF df, hn::Vec<DF> x, hn::Vec<DF> scale) {
  return hn::BitCast(hn::RebindToSigned<DF>(), hn::MulAdd(x, scale, hn::Set(df, kRoundingShift)));
}

// The 16-bit integers in the low halves of `low` and `high`, as neighbours.
template <class DI>
HWY_INLINE hn::Vec<DI> pair_up(DI di, hn::Vec<DI> low, hn::Vec<DI> high) {
  return hn::Or(hn::And(low, hn::Set(di, 0xffff)), hn::ShiftLeft<16>(high));
}

// ---- scales ----

constexpr int kRowStep = 16;  // loops over a run's rows look at whole steps: what is behind the last is 0

inline int whole_steps(int rows) { return (rows + kRowStep - 1) / kRowStep * kRowStep; }

// True if kRowStep numbers follow each other in memory, `stride` bytes apart.
inline bool is_contiguous(const std::byte* const* meta, int64_t stride) {
  int64_t off = 0;  // no branches, no flags: a few vector operations
  for (int j = 1; j < kRowStep; ++j) off |= meta[j] - meta[0] - j * stride;
  return off == 0;
}

// ---- values: pairs of rows ----

// Words of rows a and b with their halves joined, so that neighbouring 16-bit lanes are the same slot of two rows,
// and meet those rows' two weights. In each 32-bit lane:
//
//   word of a   a.high | a.low            `low`    b.low  | a.low       the lower half of the slots
//   word of b   b.high | b.low            `high`   b.high | a.high      the upper half
template <class DI>
struct JoinedPair {
  hn::Vec<hn::RepartitionToNarrow<DI>> low, high;
};
template <class DI>
HWY_INLINE JoinedPair<DI> join_halves(DI /*di*/, hn::Vec<DI> a, hn::Vec<DI> b) {
  const hn::RepartitionToNarrow<DI> d16;
  const hn::RebindToUnsigned<DI> du;
  return {hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(b)), hn::BitCast(d16, a)),
          hn::OddEven(hn::BitCast(d16, b), hn::BitCast(d16, hn::ShiftRight<16>(hn::BitCast(du, a))))};
}

// Slot kSlot of a joined pair: codes of kBits in 16-bit lanes.
template <int kBits, int kSlot, class DI>
HWY_INLINE auto slot_of(DI /*di*/, const JoinedPair<DI>& joined) {
  constexpr int kPlane = kSlot % kPlanes<kBits>;
  const hn::RepartitionToNarrow<DI> d16;
  return plane<kBits, kPlane>(d16, kSlot < kPlanes<kBits> ? joined.low : joined.high);
}

// Slots whose sums are kept at once for each of kQueries queries.
template <int kBits, class DI, int kQueries>
constexpr int kSlotsAtOnce = std::min(kSlots<kBits>, std::max(4, kSumsAtOnce<DI> / kQueries));

// How often values prefetch while kRowsOfVector rows fill a vector of words.
template <int kBits, int kRowsOfVector, int kQueries, class DI>
int64_t value_steps(DI di, int pairs, int words) {
  constexpr int kPasses = kSlots<kBits> / kSlotsAtOnce<kBits, DI, kQueries>;
  const int vectors = words * kRowsOfVector / static_cast<int>(hn::Lanes(di));
  return int64_t{kPasses} * ((pairs + kRowsOfVector - 1) / kRowsOfVector) * vectors;
}

// Slots kFirst … kFirst + kCount - 1 of kWide vectors of words of all pairs of rows, kPack pairs a vector, under the weights of
// kQueries queries -> acc. Exact. `start(r)`: what sums begin with; `weight(r, i)`: the weights of the i-th pair of rows
// and those in a vector with it; `load(i, x)`: the x-th vector of their codes.
template <int kBits, int kPack, int kFirst, int kQueries, int kWide, int kCount, class DI, class Start,
          class Weight, class Load>
HWY_INLINE void sum_slots(DI di, int pairs, Prefetcher& prefetcher,
                          hn::Vec<DI> (&acc)[kQueries][kWide][kCount], const Start& start,
                          const Weight& weight, const Load& load) {
  const hn::RepartitionToNarrow<DI> d16;
  for (int r = 0; r < kQueries; ++r) {
    const auto first = start(r);
    for (auto& vector : acc[r]) {
      for (auto& x : vector) x = first;
    }
  }
  for (int i = 0; i < pairs; i += kPack) {
    prefetcher.step();
    hn::Vec<decltype(d16)> weights[kQueries];
    for (int r = 0; r < kQueries; ++r) weights[r] = hn::BitCast(d16, weight(r, i));
    for (int x = 0; x < kWide; ++x) {
      const JoinedPair<DI> joined = load(i, x);
      unroll<kCount>([&](auto index) KV_INLINE {
        constexpr int kSlot = decltype(index)::value;
        const auto codes = slot_of<kBits, kFirst + kSlot>(di, joined);
        for (int r = 0; r < kQueries; ++r)
          acc[r][x][kSlot] = add_products(di, codes, weights[r], acc[r][x][kSlot]);
      });
    }
  }
}

// p [count] from j on, and 0 behind. Looks at a vector of p from no later than the last.
template <class DF>
HWY_INLINE hn::Vec<DF> load_valid(DF df, const float* p, int j, int count) {
  const auto valid = hn::FirstN(df, static_cast<size_t>(std::max(count - j, 0)));
  return hn::IfThenElseZero(valid, hn::LoadU(df, p + std::min(j, count - 1)));
}

// ---- queries ----

// The largest code of a query for which no sum of products can overflow. In floats, since a unit with a scale a
// channel asks anew and a division of 64-bit integers is slow.
inline float largest_query_code(int bits, int head_dim) {
  constexpr float kLargestSum = 2147480000.0f;  // below 2^31 by more than the division's rounding can matter
  const auto terms = static_cast<float>(head_dim * ((1 << bits) - 1));
  return std::min(std::floor(kLargestSum / terms), static_cast<float>(INT16_MAX));
}

inline float largest_magnitude(const float* x, int n) {
  const hn::CappedTag<float, 16> d;
  auto top = hn::Zero(d);
  for (int i = 0; i < n; i += static_cast<int>(hn::Lanes(d)))
    top = hn::Max(top, hn::Abs(hn::LoadU(d, x + i)));
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

inline float sum_of(const float* x, int n) {
  const hn::CappedTag<float, 16> df;
  auto sum = hn::Zero(df);
  for (int i = 0; i < n; i += static_cast<int>(hn::Lanes(df))) sum = hn::Add(sum, hn::LoadU(df, x + i));
  return hn::GetLane(hn::SumOfLanes(df, sum));
}

// Codes the task's queries with code(x, largest, r), unless the last run was of the same layout.
template <class Code>
void code_queries(const Encoding& e, const CodeWork& work, Code code) {
  if (work.queries.coded_for == e) return;
  for (int r = 0; r < work.task.queries; ++r) {
    const float* q = work.task.query(r, work.head_dim);
    code(q, largest_magnitude(q, work.head_dim), r);
    work.queries.offset[r] = e.affine ? sum_of(q, work.head_dim) : 0.0f;
  }
  work.queries.coded_for = e;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
