// Scores and weighted values of rows of integer codes, without decoding them: queries and weights become
// 16-bit integers, products are summed exactly in 32 bits, and scales are applied to sums.
//
//   score   scale * sum_d q[d] c[d]          q as 16 bits, once a task; for kChannel, whose scales differ
//                                            from d to d, scale[d] goes into q once a unit
//   value   sum_j (p[j] scale[j]) c[j][d]    p[j] scale[j] as 16 bits, once a tile
//
// Codes are taken as unsigned, and their middle is taken off the sums. Whatever is rounded is rounded to
// 1/32767 of the largest of its kind, far below the codes' own step of at best 1/255.
//
// Vectors hold 32-bit words of codes. Shifting and masking a word as two 16-bit halves gives *planes* of
// codes in 16-bit lanes (slots `plane` of the lower half and `plane + planes` of the upper half), ready for
// the multiply-add of neighbouring 16-bit lanes. For values, the halves of two rows' words are first joined,
// so that neighbours are the same element of two rows. Where a row's words fill half a vector, a vector holds
// two rows (kPack). Private to kernels/cpu; compiled once a target.
#if defined(KV_ATTENTION_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_ATTENTION_CODES_INL_H_
#undef KV_ATTENTION_CODES_INL_H_
#else
#define KV_ATTENTION_CODES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include <hwy/highway.h>

#include "kernels/bits.h"
#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/fold-inl.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/tile.h"
#include "kernels/formats.h"
#include "kernels/math.h"

KV_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kMaxBlocks = kMaxHeadDim / kGgmlBlock;
constexpr int kMaxWords = kMaxHeadDim / 4;

// ---- layouts of codes: which element is in slot `slot` of word `word` of `words` ----

// kToken and kChannel (bits.h).
template <int kWidth>
struct Dealt {
  static constexpr int kBits = kWidth;
  static constexpr int kWordsPerBlock = 0;  // one scale for the row
  static constexpr uint32_t kFlip = 0;      // brings stored codes to unsigned ones
  static int element(int slot, int word, int words) { return slot * words + word; }
};

struct GgmlQ8 {
  static constexpr int kBits = 8;
  static constexpr int kWordsPerBlock = kGgmlBlock / 4;
  static constexpr uint32_t kFlip = 0x80808080u;
  static int element(int slot, int word, int /*words*/) { return 4 * word + slot; }
};

struct GgmlQ4 {
  static constexpr int kBits = 4;
  static constexpr int kWordsPerBlock = kGgmlBlock / 8;
  static constexpr uint32_t kFlip = 0;
  static int element(int slot, int word, int /*words*/) {
    const int block = word / kWordsPerBlock, byte = word % kWordsPerBlock * 4 + slot / 2;
    return block * kGgmlBlock + slot % 2 * (kGgmlBlock / 2) + byte;
  }
};

template <class Layout>
constexpr int kPlanes = 16 / Layout::kBits;
template <class Layout>
constexpr int32_t kMiddle = 1 << (Layout::kBits - 1);

// Calls with the layout, with vectors of words, and with the rows that a vector holds.
template <class Call>
HWY_INLINE void with_layout(const Encoding& e, int head_dim, Call call) {
  const hn::ScalableTag<int32_t> full;
  const hn::CappedTag<int32_t, 8> eight;
  constexpr std::integral_constant<int, 1> one;
  const auto sized = [&](auto layout) KV_ATTR {
    using Layout = decltype(layout);
    const int words = head_dim * Layout::kBits / 32;
    if (words % static_cast<int>(hn::Lanes(full)) == 0) return call(layout, full, one);
    if constexpr (Layout::kWordsPerBlock == 0 && Layout::kBits < 8) {
      constexpr std::integral_constant<int, 2> two;
      if constexpr (hn::MaxLanes(full) > 8) {
        if (words * 2 == static_cast<int>(hn::Lanes(full))) return call(layout, full, two);
      }
      if constexpr (hn::MaxLanes(full) >= 8 && Layout::kBits == 2) {
        if (words == 4) return call(layout, eight, two);
      }
    }
    if (words % 8 == 0) return call(layout, eight, one);
    call(layout, hn::CappedTag<int32_t, 4>(), one);
  };
  if (e.format == Format::kQ8_0) return sized(GgmlQ8());
  if (e.format == Format::kQ4_0) return sized(GgmlQ4());
  if (e.bits == 8) return sized(Dealt<8>());
  if (e.bits == 4) return sized(Dealt<4>());
  sized(Dealt<2>());
}

// Vectors of the words of one row, where kPack rows fill one of DI.
template <class DI, int kPack>
struct OneRow {
  using Tag = hn::Half<DI>;
};
template <class DI>
struct OneRow<DI, 1> {
  using Tag = DI;
};

// sum + the products of the 16-bit lanes, added in pairs.
template <class DI, class V16, class V32>
HWY_INLINE V32 add_products([[maybe_unused]] DI di, V16 a, V16 b, V32 sum) {
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (hn::MaxLanes(DI()) == 16) return V32{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
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

template <class Layout, class DI>
HWY_INLINE hn::Vec<DI> load_words(DI di, const std::byte* row, int word) {
  const hn::RebindToUnsigned<DI> du;
  auto words = hn::LoadU(du, reinterpret_cast<const uint32_t*>(row) + word);
  if constexpr (Layout::kFlip != 0) words = hn::Xor(words, hn::Set(du, Layout::kFlip));
  return hn::BitCast(di, words);
}

// The same of kPack rows: row[0], and behind it row[next].
template <class Layout, int kPack, class DI>
HWY_INLINE hn::Vec<DI> load_rows(DI di, const std::byte* const* row, int next, int word) {
  if constexpr (kPack == 1) {
    return load_words<Layout>(di, row[0], word);
  } else {
    const hn::Half<DI> half;
    return hn::Combine(di, load_words<Layout>(half, row[next], word), load_words<Layout>(half, row[0], word));
  }
}

template <class DI>
HWY_INLINE hn::Vec<DI> pair_up(DI di, hn::Vec<DI> low, hn::Vec<DI> high) {
  return hn::Or(hn::And(low, hn::Set(di, 0xffff)), hn::ShiftLeft<16>(high));
}

// ---- queries ----

struct CodedQueries {
  HWY_ALIGN int16_t q[kQueryBlock * kMaxHeadDim];    // [queries, planes, kPack, 2 * words]
  HWY_ALIGN int32_t start[kQueryBlock * kMaxWords];  // [queries, words]: -middle times the sum of a lane's q
  float step[kQueryBlock];                           // an element is about step * q
  int32_t start_sum[kQueryBlock];
  float offset[kQueryBlock];  // what zero points add to each score; kToken: the sum of the query

  // Query r's codes are at q + r * head_dim * kPack, since planes * 2 * words is head_dim.
};

// x * scale rounded to a 16-bit integer, in the low half of each lane: the low bits of a float that much
// larger. Cheaper than a conversion, which must mind what is out of range.
template <class DF>
HWY_INLINE auto rounded_bits(DF df, hn::Vec<DF> x, hn::Vec<DF> scale) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  return hn::BitCast(hn::RebindToSigned<DF>(), hn::MulAdd(x, scale, hn::Set(df, kMagic)));
}
template <class V>
HWY_INLINE V low_half(V bits) {
  return hn::ShiftRight<16>(hn::ShiftLeft<16>(bits));
}

// The largest code of a query for which no sum of products can overflow.
inline float largest_query_code(int bits, int head_dim) {
  const int64_t fits = INT32_MAX / (int64_t{head_dim} * ((1 << bits) - 1));
  return static_cast<float>(std::min<int64_t>(fits, INT16_MAX));
}

template <class D>
HWY_INLINE float largest_magnitude(D d, const float* x, int n) {
  auto top = hn::Zero(d);
  for (int i = 0; i < n; i += static_cast<int>(hn::Lanes(d)))
    top = hn::Max(top, hn::Abs(hn::LoadU(d, x + i)));
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

// Query r's elements x [head_dim], of magnitudes up to `largest` -> its codes, in the layout's order.
template <class Layout, int kPack, class DI>
void code_query(DI, const float* x, float largest, int head_dim, int r, CodedQueries& out) {
  const typename OneRow<DI, kPack>::Tag di;
  const hn::RebindToFloat<decltype(di)> df;
  const hn::RepartitionToNarrow<decltype(di)> d16;
  const int lanes = static_cast<int>(hn::Lanes(di));
  const int words = head_dim * Layout::kBits / 32;
  const float top = largest_query_code(Layout::kBits, head_dim);
  const float inverse = largest > 0.0f ? top / largest : 0.0f;
  out.step[r] = largest / top;
  HWY_ALIGN float ordered[kMaxHeadDim];  // [slots, words]
  if constexpr (Layout::kWordsPerBlock != 0) {
    for (int slot = 0; slot < 32 / Layout::kBits; ++slot) {
      for (int w = 0; w < words; ++w) ordered[slot * words + w] = x[Layout::element(slot, w, words)];
    }
    x = ordered;
  }
  const auto scale = hn::Set(df, inverse);
  auto* q = reinterpret_cast<int32_t*>(out.q + r * head_dim * kPack);
  auto all = hn::Zero(di);
  for (int w = 0; w < words; w += lanes) {
    auto sum = hn::Zero(di);
    for (int p = 0; p < kPlanes<Layout>; ++p) {
      const auto low = rounded_bits(df, hn::LoadU(df, x + p * words + w), scale);
      const auto high = rounded_bits(df, hn::LoadU(df, x + (p + kPlanes<Layout>)*words + w), scale);
      const auto pair = pair_up(di, low, high);
      for (int copy = 0; copy < kPack; ++copy) hn::StoreU(pair, di, q + (p * kPack + copy) * words + w);
      sum = add_products(di, hn::BitCast(d16, pair), hn::Set(d16, 1), sum);
    }
    const auto start = hn::Mul(sum, hn::Set(di, -kMiddle<Layout>));
    if constexpr (Layout::kWordsPerBlock != 0) hn::StoreU(start, di, out.start + r * kMaxWords + w);
    all = hn::Add(all, start);
  }
  out.start_sum[r] = hn::GetLane(hn::SumOfLanes(di, all));
}

// ---- scales a block ----

// A run's scales, four rows and four blocks together: [blocks / 4][rows / 4][block][row].
struct BlockScales {
  static constexpr int kQuads = kTileRows / 4;
  HWY_ALIGN float scale[kMaxBlocks / 4 * kQuads * 16 + 16];

  float* quads(int block_group) { return scale + block_group * kQuads * 16; }
  const float* quads(int block_group) const { return scale + block_group * kQuads * 16; }
};

// Four scales, 0 beyond `count`.
inline hn::Vec<hn::CappedTag<float, 4>> load_four_scales(const std::byte* meta, int count) {
  const hn::CappedTag<float, 4> df;
  const hn::Rebind<uint16_t, decltype(df)> half;
  if (count >= 4) return widen_half(df, hn::LoadU(half, reinterpret_cast<const uint16_t*>(meta)));
  uint64_t bits = 0;
  for (int i = 0; i < count; ++i) bits |= uint64_t{load<uint16_t>(meta, i)} << (16 * i);
  const hn::CappedTag<uint64_t, 1> one;
  return widen_half(df, hn::BitCast(half, hn::Set(one, bits)));
}

// `meta` [count], padded with zeros to a multiple of 4 rows and of 4 blocks. False if one is not finite.
inline bool load_block_scales(const std::byte* const* meta, int count, int blocks, BlockScales& out) {
  const hn::CappedTag<float, 4> df;
  auto probe = hn::Zero(df);
  for (int g = 0; 4 * g < blocks; ++g) {
    float* quad = out.quads(g);
    for (int j = 0; j < count; j += 4, quad += 16) {
      const auto row = [&](int i) KV_ATTR {
        if (j + i >= count) return hn::Zero(df);
        const auto scales = load_four_scales(meta[j + i] + g * 4 * int64_t{sizeof(uint16_t)}, blocks - 4 * g);
        probe = hn::MulAdd(scales, hn::Zero(df), probe);
        return scales;
      };
      const auto a = row(0), b = row(1), c = row(2), e = row(3);
      hn::StoreInterleaved4(a, b, c, e, df, quad);
    }
  }
  return hn::AllTrue(df, hn::Eq(probe, hn::Zero(df)));
}

// The scales of four rows' words from `word` on, as the sums of those words lie after fold_four().
template <class Layout, class DF>
HWY_INLINE hn::Vec<DF> folded_scales(DF df, const BlockScales& scales, int j, int word) {
  const int block = word / Layout::kWordsPerBlock;
  const auto from = hn::LoadU(df, scales.quads(block / 4) + j * 4 + block % 4 * 4);
  if constexpr (Layout::kWordsPerBlock == 4) return from;
  // Two neighbouring 128-bit blocks belong to one block of scales.
  const hn::RebindToSigned<DF> di;
  const auto lane = hn::Iota(di, 0);
  const auto index = hn::Add(hn::ShiftLeft<2>(hn::ShiftRight<3>(lane)), hn::And(lane, hn::Set(di, 3)));
  return hn::TableLookupLanes(from, hn::IndicesFromVec(df, index));
}

// ---- scores ----

// Up to 4 queries against 4 * kPack keys -> scores [kQueries, 4 * kPack], rows kScoreStride apart, in steps
// of each query. `j`: the first key's place in `scales`, if the layout has them.
template <class Layout, int kPack, int kQueries, class DI>
HWY_INLINE void score_codes_block(DI di, const std::byte* const* keys, const BlockScales& scales, int j,
                                  int head_dim, const CodedQueries& coded, int first, Ahead& ahead,
                                  float* scores) {
  using V = hn::Vec<DI>;
  constexpr bool kBlocks = Layout::kWordsPerBlock != 0;
  const hn::RebindToFloat<DI> df;
  const hn::RepartitionToNarrow<DI> d16;
  const int lanes = static_cast<int>(hn::Lanes(di)), words = head_dim * Layout::kBits / 32;
  V acc[kQueries][4];
  for (auto& row : acc) {
    for (V& x : row) x = hn::Zero(di);
  }
  [[maybe_unused]] hn::Vec<decltype(df)> total[kQueries];
  for (auto& x : total) x = hn::Zero(df);
  const int16_t* q = coded.q + first * head_dim * kPack;
  for (int w = 0; w < words; w += lanes, q += 2 * lanes) {
    ahead.step();
    hn::Vec<decltype(d16)> key[4];
    for (int i = 0; i < 4; ++i) key[i] = hn::BitCast(d16, load_rows<Layout, kPack>(di, keys + i, 4, w));
    if constexpr (kBlocks) {
      for (int r = 0; r < kQueries; ++r) {
        const auto start = hn::LoadU(di, coded.start + (first + r) * kMaxWords + w);
        for (V& x : acc[r]) x = start;
      }
    }
    const auto add_plane = [&](auto index) KV_INLINE {
      constexpr int kPlane = decltype(index)::value;
      hn::Vec<decltype(d16)> codes[4];
      for (int i = 0; i < 4; ++i) codes[i] = plane<Layout::kBits, kPlane>(d16, key[i]);
      for (int r = 0; r < kQueries; ++r) {
        const auto query = hn::LoadU(d16, q + (r * head_dim + kPlane * 2 * words) * kPack);
        for (int i = 0; i < 4; ++i) acc[r][i] = add_products(di, codes[i], query, acc[r][i]);
      }
    };
    [&]<int... kPlane>(std::integer_sequence<int, kPlane...>) KV_INLINE {
      (add_plane(std::integral_constant<int, kPlane>()), ...);
    }
    (std::make_integer_sequence<int, kPlanes<Layout>>());
    if constexpr (kBlocks) {
      const auto scale = folded_scales<Layout>(df, scales, j, w);
      for (int r = 0; r < kQueries; ++r) {
        const V sums = fold_four(di, acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
        total[r] = hn::MulAdd(hn::ConvertTo(df, sums), scale, total[r]);
      }
    }
  }
  const hn::CappedTag<int32_t, 4> four;
  const hn::CappedTag<float, 4> four_f;
  for (int r = 0; r < kQueries; ++r) {
    float* to = scores + r * kScoreStride;
    if constexpr (kBlocks) {
      hn::StoreU(fold_blocks(df, total[r]), four_f, to);
    } else {
      const auto store = [&](auto sums, float* at) KV_ATTR {
        const auto centred = hn::Add(sums, hn::Set(four, coded.start_sum[first + r]));
        hn::StoreU(hn::ConvertTo(four_f, centred), four_f, at);
      };
      const V sums = fold_four(di, acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
      if constexpr (kPack == 1) {
        store(fold_blocks(di, sums), to);
      } else {
        const hn::Half<DI> half;
        store(fold_blocks(half, hn::LowerHalf(half, sums)), to);
        store(fold_blocks(half, hn::UpperHalf(half, sums)), to + 4);
      }
    }
  }
}

// ---- weights ----

// Weights of up to 4 queries as 16-bit codes: pairs of rows in one 32-bit lane, so that a broadcast of it
// meets the paired rows. With scales a block: [queries, blocks / 4, pairs, 4].
struct CodedWeights {
  static constexpr int kPairs = kTileRows / 2;
  static constexpr int kStride = kPairs * kMaxBlocks;  // from a query's to the next one's
  HWY_ALIGN int32_t pair[4 * kStride];                 // [queries, pairs]
  HWY_ALIGN int32_t start[4 * kMaxBlocks];             // [queries, blocks]: -middle * their sum
  float step[4];
};

constexpr float kLargestWeightCode = 32767.0f;

// weights [kScoreStride], 0 beyond `count` up to a multiple of 16 -> query r of `out`.
template <class Layout>
void code_weights(const float* weights, int count, int r, CodedWeights& out) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Rebind<uint16_t, decltype(df)> d16;
  const int lanes = static_cast<int>(hn::Lanes(df)), padded = (count + 15) / 16 * 16;
  const float largest = largest_magnitude(df, weights, padded);
  const auto scale = hn::Set(df, largest > 0.0f ? kLargestWeightCode / largest : 0.0f);
  auto* codes = reinterpret_cast<uint16_t*>(out.pair + r * CodedWeights::kStride);
  auto sum = hn::Zero(di);
  for (int j = 0; j < padded; j += lanes) {
    const auto code = rounded_bits(df, hn::LoadU(df, weights + j), scale);
    hn::StoreU(hn::TruncateTo(d16, hn::BitCast(du, code)), d16, codes + j);
    sum = hn::Add(sum, low_half(code));
  }
  out.start[r * kMaxBlocks] = -kMiddle<Layout> * hn::GetLane(hn::SumOfLanes(di, sum));
  out.step[r] = largest / kLargestWeightCode;
}

// The largest magnitude of each row's scales -> out [count, to a multiple of 16], zeros behind.
inline void largest_scales(const BlockScales& scales, int count, int blocks, float* out) {
  const hn::CappedTag<float, 4> df;
  std::fill_n(out + count / 16 * 16, 16, 0.0f);
  for (int j = 0; j < count; j += 4) {
    auto top = hn::Zero(df);
    for (int b = 0; b < blocks; ++b)
      top = hn::Max(top, hn::Abs(hn::Load(df, scales.quads(b / 4) + j * 4 + b % 4 * 4)));
    hn::Store(top, df, out + j);
  }
}

// 16-bit codes [4 blocks, 4 rows] as [2 pairs of rows, 4 blocks].
inline void store_pairs(const uint16_t* codes, int32_t* out) {
  const hn::CappedTag<int32_t, 4> d;
  const auto* words = reinterpret_cast<const int32_t*>(codes);
  const auto a = hn::Load(d, words), b = hn::Load(d, words + 4);
  hn::Store(hn::ConcatEven(d, b, a), d, out);
  hn::Store(hn::ConcatOdd(d, b, a), d, out + 4);
}

// weights [kScoreStride], 0 beyond `count` up to a multiple of 16, under a scale a block -> query r of `out`.
// `largest_scale` [count]: of each row.
template <class Layout>
void code_block_weights(const float* weights, const BlockScales& scales, const float* largest_scale,
                        int count, int blocks, int r, CodedWeights& out) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Rebind<uint16_t, decltype(df)> d16;
  const int lanes = static_cast<int>(hn::Lanes(df));
  auto top = hn::Zero(df);
  for (int j = 0; j < count; j += lanes)
    top = hn::Max(top, hn::Mul(hn::Load(df, weights + j), hn::Load(df, largest_scale + j)));
  const float largest = hn::GetLane(hn::MaxOfLanes(df, top));
  const auto inverse = hn::Set(df, largest > 0.0f ? kLargestWeightCode / largest : 0.0f);
  out.step[r] = largest / kLargestWeightCode;
  for (int g = 0; 4 * g < blocks; ++g) {
    HWY_ALIGN int32_t sums[16] = {};  // [4 blocks, 4 rows]
    int32_t* pair = out.pair + r * CodedWeights::kStride + g * CodedWeights::kPairs * 4;
    const float* quad = scales.quads(g);
    for (int j = 0; j < count; j += 4, quad += 16, pair += 8) {
      HWY_ALIGN uint16_t codes[16];
      const auto weight = hn::Mul(hn::LoadDup128(df, weights + j), inverse);
      for (int i = 0; i < 16; i += lanes) {
        const auto code = rounded_bits(df, weight, hn::Load(df, quad + i));
        hn::Store(hn::TruncateTo(d16, hn::BitCast(du, code)), d16, codes + i);
        hn::Store(hn::Add(hn::Load(di, sums + i), low_half(code)), di, sums + i);
      }
      store_pairs(codes, pair);
    }
    for (int b = 0; b < 4; ++b) {
      const int32_t* row = sums + 4 * b;
      out.start[r * kMaxBlocks + 4 * g + b] = -kMiddle<Layout> * (row[0] + row[1] + row[2] + row[3]);
    }
  }
}

// Which of the four numbers of a group of blocks each lane of the words from `word` on needs.
template <class Layout, class DI>
HWY_INLINE auto blocks_of_words(DI di, int word) {
  const auto block =
      hn::ShiftRight < Layout::kWordsPerBlock == 8 ? 3 : 2 > (hn::Add(hn::Iota(di, 0), hn::Set(di, word)));
  return hn::IndicesFromVec(di, hn::And(block, hn::Set(di, 3)));
}

// ---- values ----

// The sums of the kPack rows of a vector.
template <int kPack, class DI>
HWY_INLINE auto join_rows([[maybe_unused]] DI di, hn::Vec<DI> v) {
  if constexpr (kPack == 1) {
    return v;
  } else {
    const hn::Half<DI> half;
    return hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v));
  }
}

// Slots kFirst … kFirst + 3 of the words from `w` on, of all pairs of rows under the weights of kQueries
// queries. Exact.
template <class Layout, int kPack, int kFirst, int kQueries, class DI>
HWY_INLINE void sum_slots(DI di, const std::byte* const* rows, int pairs, int w, const CodedWeights& weights,
                          Ahead& ahead, hn::Vec<DI> (&acc)[kQueries][4]) {
  const hn::RepartitionToNarrow<DI> d16;
  const hn::RebindToUnsigned<DI> du;
  constexpr bool kBlocks = Layout::kWordsPerBlock != 0;
  const int32_t *pair = weights.pair, *first = weights.start;
  [[maybe_unused]] const auto blocks = [&] KV_ATTR {
    if constexpr (kBlocks) {
      const int group = w / Layout::kWordsPerBlock / 4;
      pair += group * CodedWeights::kPairs * 4;
      first += group * 4;
      return blocks_of_words<Layout>(di, w);
    } else {
      return 0;
    }
  }();
  for (int r = 0; r < kQueries; ++r, first += kMaxBlocks) {
    hn::Vec<DI> start;
    if constexpr (kBlocks) {
      start = hn::TableLookupLanes(hn::LoadDup128(di, first), blocks);
    } else if constexpr (kPack == 2) {
      const hn::Half<DI> half;
      start = hn::Combine(di, hn::Zero(half), hn::Set(half, *first));
    } else {
      start = hn::Set(di, *first);
    }
    for (auto& x : acc[r]) x = start;
  }
  for (int i = 0; i < pairs; i += kPack, rows += 2 * kPack, pair += kBlocks ? 4 : kPack) {
    ahead.step();
    const auto a = load_rows<Layout, kPack>(di, rows, 2, w), b = load_rows<Layout, kPack>(di, rows + 1, 2, w);
    const auto low = hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(b)), hn::BitCast(d16, a));
    const auto high =
        hn::OddEven(hn::BitCast(d16, b), hn::BitCast(d16, hn::ShiftRight<16>(hn::BitCast(du, a))));
    hn::Vec<DI> weight[kQueries];
    for (int r = 0; r < kQueries; ++r) {
      const int32_t* now = pair + r * CodedWeights::kStride;
      if constexpr (kBlocks) {
        weight[r] = hn::TableLookupLanes(hn::LoadDup128(di, now), blocks);
      } else if constexpr (kPack == 2) {
        const hn::Half<DI> half;
        weight[r] = hn::Combine(di, hn::Set(half, now[1]), hn::Set(half, now[0]));
      } else {
        weight[r] = hn::Set(di, *now);
      }
    }
    const auto add_slot = [&](auto index) KV_INLINE {
      constexpr int kSlot = kFirst + decltype(index)::value, kPlane = kSlot % kPlanes<Layout>;
      const auto codes = plane<Layout::kBits, kPlane>(d16, kSlot < kPlanes<Layout> ? low : high);
      for (int r = 0; r < kQueries; ++r) {
        acc[r][kSlot - kFirst] = add_products(di, codes, hn::BitCast(d16, weight[r]), acc[r][kSlot - kFirst]);
      }
    };
    add_slot(std::integral_constant<int, 0>());
    add_slot(std::integral_constant<int, 1>());
    add_slot(std::integral_constant<int, 2>());
    add_slot(std::integral_constant<int, 3>());
  }
}

// sums [slots, lanes] of words w … -> the elements' places in `sum`, added.
template <class Layout, class DF, size_t kSlots, size_t kLanes>
HWY_INLINE void add_in_order(DF df, const float (&sums)[kSlots][kLanes], int w, float* sum) {
  const int lanes = static_cast<int>(hn::Lanes(df));
  HWY_ALIGN float ordered[4 * kLanes];
  constexpr int kStep = static_cast<int>(kSlots) / 4;  // ggml's 4-bit bytes: even slots, then odd ones
  for (int part = 0; part < kStep; ++part) {
    hn::StoreInterleaved4(hn::Load(df, sums[part]), hn::Load(df, sums[part + kStep]),
                          hn::Load(df, sums[part + 2 * kStep]), hn::Load(df, sums[part + 3 * kStep]), df,
                          ordered);
    constexpr int kChunk = 4 * Layout::kWordsPerBlock;  // consecutive elements of a block
    const hn::CappedTag<float, 4> four;
    for (int i = 0; i < 4 * lanes; i += 4) {
      const int word = w + i / 4;
      float* at = sum + word / Layout::kWordsPerBlock * kGgmlBlock + part * kChunk +
                  word % Layout::kWordsPerBlock * 4;
      hn::StoreU(hn::Add(hn::LoadU(four, at), hn::LoadU(four, ordered + i)), four, at);
    }
  }
}

// Adds the rows' weighted values to sum [kQueries, head_dim].
template <class Layout, int kPack, int kQueries, class DI>
void add_code_values(DI di, const std::byte* const* rows, int pairs, const CodedWeights& weights,
                     int head_dim, Ahead& ahead, float* sum) {
  const typename OneRow<DI, kPack>::Tag row;
  const hn::RebindToFloat<decltype(row)> df;
  constexpr int kSlots = 32 / Layout::kBits;
  const int words = head_dim * Layout::kBits / 32;
  for (int w = 0; w < words; w += static_cast<int>(hn::Lanes(di))) {
    HWY_ALIGN float sums[kQueries][kSlots][hn::MaxLanes(df)];
    const auto group = [&](auto index) KV_INLINE {
      constexpr int kFirst = 4 * decltype(index)::value;
      hn::Vec<DI> acc[kQueries][4];
      sum_slots<Layout, kPack, kFirst, kQueries>(di, rows, pairs, w, weights, ahead, acc);
      for (int r = 0; r < kQueries; ++r) {
        const auto step = hn::Set(df, weights.step[r]);
        for (int slot = 0; slot < 4; ++slot) {
          const auto values = hn::Mul(hn::ConvertTo(df, join_rows<kPack>(di, acc[r][slot])), step);
          if constexpr (Layout::kWordsPerBlock == 0) {
            float* at = sum + r * head_dim + (kFirst + slot) * words + w;
            hn::StoreU(hn::Add(hn::LoadU(df, at), values), df, at);
          } else {
            hn::Store(values, df, sums[r][kFirst + slot]);
          }
        }
      }
    };
    [&]<int... kGroup>(std::integer_sequence<int, kGroup...>) KV_INLINE {
      (group(std::integral_constant<int, kGroup>()), ...);
    }
    (std::make_integer_sequence<int, kSlots / 4>());
    if constexpr (Layout::kWordsPerBlock != 0) {
      for (int r = 0; r < kQueries; ++r) add_in_order<Layout>(df, sums[r], w, sum + r * head_dim);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
