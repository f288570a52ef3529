// ggml's blocks on the vector units: four at a time, whose scales are made in one vector, from two stretches
// of 64 elements. Private to kernels/cpu; compiled once a target.
#if defined(KV_ENCODE_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_ENCODE_BLOCKS_INL_H_
#undef KV_ENCODE_BLOCKS_INL_H_
#else
#define KV_ENCODE_BLOCKS_INL_H_
#endif

#include <utility>

#include <hwy/highway.h>

#include "kernels/cpu/encode/encode_lanes-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kPair = 2 * kGgmlBlock;

// Two blocks of a row.
struct BlockPair {
  const float* x;
  std::byte *data, *meta;
};

struct FourBlocks {
  const float* at[kFour];
  FourBlocks(const BlockPair& a, const BlockPair& b) : at{a.x, a.x + kGgmlBlock, b.x, b.x + kGgmlBlock} {}
};

// block_scale() of scales up to f16's largest: stores them, and returns the inverses.
template <class V>
HWY_INLINE V store_block_scales(V scale, const BlockPair& a, const BlockPair& b) {
  const Four d;
  const hn::Rebind<uint16_t, Four> d16;
  uint16_t half[kFour];
  hn::StoreU(hn::DemoteTo(d16, half_bits(d, scale)), d16, half);
  std::memcpy(a.meta, half, 4);
  std::memcpy(b.meta, half + 2, 4);
  const auto tiny = hn::Lt(hn::Abs(scale), hn::Set(d, 0x1p-126f));
  return hn::IfThenZeroElse(tiny, hn::Div(hn::Set(d, 1.0f), scale));
}

// 16-bit lanes of codes, of vectors packed by pairs, to bytes in the order of the vectors.
template <class DI, class V16>
HWY_INLINE hn::Vec<DI> bytes_of_pairs(DI di, V16 first, V16 second) {
  const hn::Repartition<uint16_t, DI> d16;
  const auto word = hn::OrAnd(hn::ShiftLeft<8>(hn::BitCast(d16, second)), hn::BitCast(d16, first),
                              hn::Set(d16, uint16_t{0xff}));
  return in_order(di, hn::BitCast(di, word), kFromPairs);
}

// q8_0_code, of blocks in range.
template <class D, class V>
HWY_INLINE hn::Vec<Bits<D>> q8_0_codes(D d, const float* x, V inverse_scale) {
  const auto code = hn::Mul(hn::LoadU(d, x), inverse_scale);
  const auto half = hn::BitCast(d, hn::Set(Bits<D>(), 0x3effffff));
  return hn::ConvertTo(Bits<D>(), hn::Add(code, hn::CopySignToAbs(half, code)));
}

template <class D>
HWY_INLINE void store_q8_0_pair(D d, const BlockPair& pair, const float* inverse_scale) {
  const Bits<D> di;
  const hn::Repartition<int16_t, D> d16;
  constexpr int kLanes = lanes_of(D());
  const auto two = [&](int i) KV_INLINE {
    const int j = i + kLanes;
    return hn::ReorderDemote2To(d16, q8_0_codes(d, pair.x + i, hn::Set(d, inverse_scale[i / kGgmlBlock])),
                                q8_0_codes(d, pair.x + j, hn::Set(d, inverse_scale[j / kGgmlBlock])));
  };
  for (int i = 0; i < kPair; i += 4 * kLanes)
    hn::StoreU(bytes_of_pairs(di, two(i), two(i + 2 * kLanes)), di,
               reinterpret_cast<int32_t*>(pair.data + i));
}

template <class D>
HWY_INLINE bool encode_pairs(D d, Q8_0Format, const BlockPair& a, const BlockPair& b) {
  const Four four;
  const auto largest = largest_of_four(d, Length<kGgmlBlock>(), FourBlocks(a, b).at);
  const auto scale = hn::Div(hn::BitCast(four, largest), hn::Set(four, 127.0f));
  if (!hn::AllTrue(four, hn::Le(scale, hn::Set(four, kLargestHalf)))) return false;
  HWY_ALIGN float inverse_scale[kFour];
  hn::Store(store_block_scales(scale, a, b), four, inverse_scale);
  store_q8_0_pair(d, a, inverse_scale);
  store_q8_0_pair(d, b, inverse_scale + 2);
  return true;
}

// Each block's first element of the largest magnitude. Where the largest and the smallest are each other's
// negatives, which is rare, only the block itself can tell.
HWY_INLINE hn::Vec<Four> first_of_largest(const FourExtremes& extremes, FourPlaces block) {
  const Four four;
  const auto high = extremes.high, negative = hn::Neg(extremes.low);
  if (HWY_LIKELY(hn::AllFalse(four, hn::Eq(high, negative))))
    return hn::IfThenElse(hn::Gt(high, negative), high, extremes.low);
  HWY_ALIGN float first[kFour];
  hn::Store(hn::Max(high, negative), four, first);
  for (int i = 0; i < kFour; ++i) {
    const float* end = block[i] + kGgmlBlock - 1;
    first[i] = *std::find_if(block[i], end, [&](float y) { return std::fabs(y) == first[i]; });
  }
  return hn::Load(four, first);
}

// q4_0_code of two vectors of a block in range, before codes are cut off at 15.
template <class D>
HWY_INLINE auto q4_0_codes(D d, const float* x, const float* y, float scale_x, float scale_y) {
  const auto code = [&](const float* at, float inverse_scale) KV_INLINE {
    const auto product = hn::Mul(hn::LoadU(d, at), hn::Set(d, inverse_scale));
    return hn::ConvertTo(Bits<D>(), hn::Add(product, hn::Set(d, 8.5f)));
  };
  const hn::Repartition<int16_t, D> d16;
  return hn::Min(hn::ReorderDemote2To(d16, code(x, scale_x), code(y, scale_y)), hn::Set(d16, int16_t{15}));
}

template <class D>
HWY_INLINE void store_q4_0_pairs(D d, const BlockPair& a, const BlockPair& b, const float* inverse_scale) {
  const Bits<D> di;
  constexpr int kLanes = lanes_of(D()), kHalf = kGgmlBlock / 2;
  const FourBlocks block(a, b);
  // Bytes i on, in 16 bits each, of two vectors: element and element + 16 of a block share one.
  const auto two = [&](int i) KV_INLINE {
    const int j = i + kLanes;
    const float *x = block.at[i / kHalf] + i % kHalf, *y = block.at[j / kHalf] + j % kHalf;
    const float scale_x = inverse_scale[i / kHalf], scale_y = inverse_scale[j / kHalf];
    const auto low = q4_0_codes(d, x, y, scale_x, scale_y);
    return hn::Or(low, hn::ShiftLeft<4>(q4_0_codes(d, x + kHalf, y + kHalf, scale_x, scale_y)));
  };
  HWY_ALIGN std::byte codes[kPair];
  for (int i = 0; i < kPair; i += 4 * kLanes)
    hn::Store(bytes_of_pairs(di, two(i), two(i + 2 * kLanes)), di, reinterpret_cast<int32_t*>(codes + i));
  std::memcpy(a.data, codes, kPair / 2);
  std::memcpy(b.data, codes + kPair / 2, kPair / 2);
}

template <class D>
HWY_INLINE bool encode_pairs(D d, Q4_0Format, const BlockPair& a, const BlockPair& b) {
  const Four four;
  const FourBlocks block(a, b);
  const FourExtremes extremes = extremes_of_four(d, Length<kGgmlBlock>(), block.at);
  // + 0: a block of -0 has the sign of +0.
  const auto first = hn::Add(first_of_largest(extremes, block.at), hn::Zero(four));
  const auto scale = hn::Div(first, hn::Set(four, -8.0f));
  if (!extremes.finite || !hn::AllTrue(four, hn::Le(hn::Abs(scale), hn::Set(four, kLargestHalf))))
    return false;
  HWY_ALIGN float inverse_scale[kFour];
  hn::Store(store_block_scales(scale, a, b), four, inverse_scale);
  store_q4_0_pairs(d, a, b, inverse_scale);
  return true;
}

// The last block of a row that has an odd number of them, as a pair with itself.
template <class D, class F>
bool encode_lone_block(D d, F format, const float* x, std::byte* data, std::byte* meta) {
  float twice[kPair];
  std::byte codes[kPair], scales[4];
  std::copy_n(x, kGgmlBlock, twice);
  std::copy_n(x, kGgmlBlock, twice + kGgmlBlock);
  const BlockPair pair{twice, codes, scales};
  if (!encode_pairs(d, format, pair, pair)) return false;
  std::memcpy(data, codes, F::kBlockBytes);
  std::memcpy(meta, scales, 2);
  return true;
}

template <class F, class D, class N>
HWY_INLINE bool encode_block_rows(D d, F format, N n, const RowJobs& jobs) {
  const int in_row = n / kPair, codes_bytes = 2 * F::kBlockBytes;
  BlockPair waiting{};
  for (size_t i = 0; i < jobs.size(); ++i) {
    const UnitJob& job = jobs.take(i);
    for (int at = 0; at < in_row; ++at) {
      const BlockPair pair{job.rows + at * kPair, job.data + at * codes_bytes, job.meta + at * 4};
      if (!waiting.x) {
        waiting = pair;
      } else if (!encode_pairs(d, format, std::exchange(waiting, {}), pair)) {
        return false;
      }
    }
    if (n % kPair != 0 && !encode_lone_block(d, format, job.rows + in_row * kPair,
                                             job.data + in_row * codes_bytes, job.meta + in_row * 4))
      return false;
  }
  return !waiting.x || encode_pairs(d, format, waiting, waiting);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
