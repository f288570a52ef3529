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
// so that neighbours are the same element of two rows. Private to kernels/cpu; compiled once a target.
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
#include "kernels/cpu/fold-inl.h"
#include "kernels/cpu/tile.h"
#include "kernels/formats.h"
#include "kernels/math.h"

#if HWY_TARGET == HWY_AVX3_DL
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#else
HWY_BEFORE_NAMESPACE();
#endif
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

inline bool is_code(const Encoding& e, int head_dim) {
  const bool uniform = e.format == Format::kToken || e.format == Format::kChannel;
  if (!uniform) return e.format == Format::kQ8_0 || e.format == Format::kQ4_0;
  return (e.bits == 8 || e.bits == 4 || e.bits == 2) && head_dim * e.bits % 128 == 0;
}

// Calls with the layout and with vectors that divide a row's words.
template <class Call>
HWY_INLINE void with_layout(const Encoding& e, int head_dim, Call call) {
  const hn::ScalableTag<int32_t> full;
  const auto sized = [&](auto layout) {
    const int words = head_dim * decltype(layout)::kBits / 32;
    if (words % static_cast<int>(hn::Lanes(full)) == 0) return call(layout, full);
    if (words % 8 == 0) return call(layout, hn::CappedTag<int32_t, 8>());
    call(layout, hn::CappedTag<int32_t, 4>());
  };
  if (e.format == Format::kQ8_0) return sized(GgmlQ8());
  if (e.format == Format::kQ4_0) return sized(GgmlQ4());
  if (e.bits == 8) return sized(Dealt<8>());
  if (e.bits == 4) return sized(Dealt<4>());
  sized(Dealt<2>());
}

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

template <class DI>
HWY_INLINE hn::Vec<DI> pair_up(DI di, hn::Vec<DI> low, hn::Vec<DI> high) {
  return hn::Or(hn::And(low, hn::Set(di, 0xffff)), hn::ShiftLeft<16>(high));
}

// ---- queries ----

struct CodedQueries {
  HWY_ALIGN int16_t q[kQueryBlock * kMaxHeadDim];    // [queries, planes, 2 * words]
  HWY_ALIGN int32_t start[kQueryBlock * kMaxWords];  // [queries, words]: -middle times the sum of a lane's q
  float step[kQueryBlock];                           // an element is about step * q
  int32_t start_sum[kQueryBlock];
  float offset[kQueryBlock];  // what zero points add to each score; kToken: the sum of the query

  // Words of a row are reached as q + r * head_dim, since planes * 2 * words is head_dim.
};

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

// Query r's elements x [head_dim] -> its codes, in the layout's order.
template <class Layout, class DI>
void code_query(DI di, const float* x, int head_dim, int r, CodedQueries& out) {
  const hn::RebindToFloat<DI> df;
  const int lanes = static_cast<int>(hn::Lanes(di));
  const int words = head_dim * Layout::kBits / 32;
  const float largest = largest_magnitude(df, x, head_dim);
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
  auto* q = reinterpret_cast<int32_t*>(out.q + r * head_dim);
  auto all = hn::Zero(di);
  for (int w = 0; w < words; w += lanes) {
    auto sum = hn::Zero(di);
    for (int p = 0; p < kPlanes<Layout>; ++p) {
      const auto low = hn::NearestInt(hn::Mul(hn::LoadU(df, x + p * words + w), scale));
      const auto high = hn::NearestInt(hn::Mul(hn::LoadU(df, x + (p + kPlanes<Layout>)*words + w), scale));
      hn::StoreU(pair_up(di, low, high), di, q + p * words + w);
      sum = hn::Add(sum, hn::Add(low, high));
    }
    const auto start = hn::Mul(sum, hn::Set(di, -kMiddle<Layout>));
    hn::StoreU(start, di, out.start + r * kMaxWords + w);
    all = hn::Add(all, start);
  }
  out.start_sum[r] = hn::GetLane(hn::SumOfLanes(di, all));
}

// ---- scores ----

// Up to 4 queries against 4 keys -> scores [kQueries, 4], rows kScoreStride apart, in steps of each query.
template <class Layout, int kQueries, class DI>
HWY_INLINE void score_codes_block(DI di, const std::byte* const* keys, int head_dim,
                                  const CodedQueries& coded, int first, Ahead& ahead, float* scores) {
  using V = hn::Vec<DI>;
  const hn::RepartitionToNarrow<DI> d16;
  const int lanes = static_cast<int>(hn::Lanes(di)), words = head_dim * Layout::kBits / 32;
  V acc[kQueries][4];
  for (auto& row : acc) {
    for (V& x : row) x = hn::Zero(di);
  }
  const int16_t* q = coded.q + first * head_dim;
  for (int w = 0; w < words; w += lanes, q += 2 * lanes) {
    ahead.step();
    hn::Vec<decltype(d16)> key[4];
    for (int j = 0; j < 4; ++j) key[j] = hn::BitCast(d16, load_words<Layout>(di, keys[j], w));
    const auto add_plane = [&](auto index) HWY_ATTR {
      constexpr int kPlane = decltype(index)::value;
      hn::Vec<decltype(d16)> codes[4];
      for (int j = 0; j < 4; ++j) codes[j] = plane<Layout::kBits, kPlane>(d16, key[j]);
      for (int r = 0; r < kQueries; ++r) {
        const auto query = hn::LoadU(d16, q + r * head_dim + kPlane * 2 * words);
        for (int j = 0; j < 4; ++j) acc[r][j] = add_products(di, codes[j], query, acc[r][j]);
      }
    };
    [&]<int... kPlane>(std::integer_sequence<int, kPlane...>) HWY_ATTR {
      (add_plane(std::integral_constant<int, kPlane>()), ...);
    }
    (std::make_integer_sequence<int, kPlanes<Layout>>());
  }
  const hn::CappedTag<int32_t, 4> four;
  const hn::CappedTag<float, 4> four_f;
  for (int r = 0; r < kQueries; ++r) {
    const auto sums = fold(di, acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
    const auto centred = hn::Add(sums, hn::Set(four, coded.start_sum[first + r]));
    hn::StoreU(hn::ConvertTo(four_f, centred), four_f, scores + r * kScoreStride);
  }
}

// Scales [count, kMaxBlocks] of a run's rows, and what a vector of words takes of them.
struct BlockScales {
  HWY_ALIGN float scale[(kTileRows + 4) * kMaxBlocks];
};

// The lanes' indices into the scales from block (word / words per block) on.
template <class Layout, class D32>
HWY_INLINE auto block_indices(D32 d) {
  const hn::RebindToSigned<D32> di;
  const auto lane = hn::Iota(di, 0);
  constexpr int kShift = Layout::kWordsPerBlock == 8 ? 3 : 2;
  return hn::IndicesFromVec(d, hn::ShiftRight<kShift>(lane));
}

// The same with a scale a block: sums of a vector of words are scaled before they are folded.
template <class Layout, int kQueries, class DI>
HWY_INLINE void score_blocks_block(DI di, const std::byte* const* keys, const float* scales, int head_dim,
                                   const CodedQueries& coded, int first, Ahead& ahead, float* scores) {
  const hn::RebindToFloat<DI> df;
  using V = hn::Vec<decltype(df)>;
  const hn::RepartitionToNarrow<DI> d16;
  const int lanes = static_cast<int>(hn::Lanes(di)), words = head_dim * Layout::kBits / 32;
  const auto indices = block_indices<Layout>(df);
  V acc[kQueries][4];
  for (auto& row : acc) {
    for (V& x : row) x = hn::Zero(df);
  }
  const int16_t* q = coded.q + first * head_dim;
  const int32_t* start = coded.start + first * kMaxWords;
  for (int w = 0; w < words; w += lanes, q += 2 * lanes, start += lanes) {
    ahead.step();
    hn::Vec<DI> sum[kQueries][4];
    for (int r = 0; r < kQueries; ++r) {
      for (auto& x : sum[r]) x = hn::LoadU(di, start + r * kMaxWords);
    }
    for (int j = 0; j < 4; ++j) {
      const auto key = hn::BitCast(d16, load_words<Layout>(di, keys[j], w));
      const auto add_plane = [&](auto index) HWY_ATTR {
        constexpr int kPlane = decltype(index)::value;
        const auto codes = plane<Layout::kBits, kPlane>(d16, key);
        for (int r = 0; r < kQueries; ++r) {
          const auto query = hn::LoadU(d16, q + r * head_dim + kPlane * 2 * words);
          sum[r][j] = add_products(di, codes, query, sum[r][j]);
        }
      };
      [&]<int... kPlane>(std::integer_sequence<int, kPlane...>) HWY_ATTR {
        (add_plane(std::integral_constant<int, kPlane>()), ...);
      }
      (std::make_integer_sequence<int, kPlanes<Layout>>());
      const V scale =
          hn::TableLookupLanes(hn::LoadU(df, scales + j * kMaxBlocks + w / Layout::kWordsPerBlock), indices);
      for (int r = 0; r < kQueries; ++r)
        acc[r][j] = hn::MulAdd(hn::ConvertTo(df, sum[r][j]), scale, acc[r][j]);
    }
  }
  const hn::CappedTag<float, 4> four;
  for (int r = 0; r < kQueries; ++r)
    hn::StoreU(fold(df, acc[r][0], acc[r][1], acc[r][2], acc[r][3]), four, scores + r * kScoreStride);
}

// ---- weights ----

// Weights of up to 4 queries as 16-bit codes: pairs of rows in one 32-bit lane, so that a broadcast of it
// meets the paired rows.
struct CodedWeights {
  HWY_ALIGN int32_t pair[4 * (kTileRows / 2) * kMaxBlocks + 16];  // [queries, pairs, blocks]
  HWY_ALIGN int32_t start[4 * kMaxBlocks + 16];                   // [queries, blocks]: -middle * their sum
  float step[4];
};

constexpr float kLargestWeightCode = 32767.0f;

// weights [kScoreStride], 0 beyond `count` up to a multiple of 16 -> query r of `out`.
template <class Layout>
void code_weights(const float* weights, int count, int r, CodedWeights& out) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int16_t, decltype(df)> d16;
  const int lanes = static_cast<int>(hn::Lanes(df)), padded = (count + 15) / 16 * 16;
  const float largest = largest_magnitude(df, weights, padded);
  const auto scale = hn::Set(df, largest > 0.0f ? kLargestWeightCode / largest : 0.0f);
  auto* codes = reinterpret_cast<int16_t*>(out.pair + r * (kTileRows / 2));
  auto sum = hn::Zero(di);
  for (int j = 0; j < padded; j += lanes) {
    const auto code = hn::NearestInt(hn::Mul(hn::LoadU(df, weights + j), scale));
    hn::StoreU(hn::DemoteTo(d16, code), d16, codes + j);
    sum = hn::Add(sum, code);
  }
  out.start[r] = -kMiddle<Layout> * hn::GetLane(hn::SumOfLanes(di, sum));
  out.step[r] = largest / kLargestWeightCode;
}

// weights [count] of query r under a scale a block, [count, kMaxBlocks]; rows beyond `count` up to an even
// number weigh 0.
template <class Layout>
void code_block_weights(const float* weights, const BlockScales& scales, const float* largest_scale,
                        int count, int blocks, int r, CodedWeights& out) {
  const hn::CappedTag<float, 4> df;
  const hn::RebindToSigned<decltype(df)> di;
  float largest = 0.0f;
  for (int j = 0; j < count; ++j) largest = std::max(largest, weights[j] * largest_scale[j]);
  const float inverse = largest > 0.0f ? kLargestWeightCode / largest : 0.0f;
  const int pairs = (count + 1) / 2, lanes = static_cast<int>(hn::Lanes(df));
  int32_t* pair = out.pair + r * (kTileRows / 2) * kMaxBlocks;
  for (int b = 0; b < blocks; b += lanes) {
    auto sum = hn::Zero(di);
    for (int i = 0; i < pairs; ++i) {
      const float* row = scales.scale + 2 * i * kMaxBlocks + b;
      const float second = 2 * i + 1 < count ? weights[2 * i + 1] * inverse : 0.0f;
      const auto low = hn::NearestInt(hn::Mul(hn::Load(df, row), hn::Set(df, weights[2 * i] * inverse)));
      const auto high = hn::NearestInt(hn::Mul(hn::Load(df, row + kMaxBlocks), hn::Set(df, second)));
      hn::Store(pair_up(di, low, high), di, pair + i * kMaxBlocks + b);
      sum = hn::Add(sum, hn::Add(low, high));
    }
    hn::Store(hn::Mul(sum, hn::Set(di, -kMiddle<Layout>)), di, out.start + r * kMaxBlocks + b);
  }
  out.step[r] = largest / kLargestWeightCode;
}

// ---- values ----

// Slots kFirst … kFirst + 3 of the words from `w` on, of all pairs of rows under the weights of kQueries
// queries. Exact.
template <class Layout, int kFirst, int kQueries, class DI>
HWY_INLINE void sum_slots(DI di, const std::byte* const* rows, int pairs, int w, const CodedWeights& weights,
                          Ahead& ahead, hn::Vec<DI> (&acc)[kQueries][4]) {
  const hn::RepartitionToNarrow<DI> d16;
  constexpr bool kBlocks = Layout::kWordsPerBlock != 0;
  const int stride = kBlocks ? kTileRows / 2 * kMaxBlocks : kTileRows / 2;
  const int32_t* pair = weights.pair;
  [[maybe_unused]] const auto indices = [&] HWY_ATTR {
    if constexpr (kBlocks) {
      pair += w / Layout::kWordsPerBlock;
      return block_indices<Layout>(di);
    } else {
      return 0;
    }
  }();
  for (int r = 0; r < kQueries; ++r) {
    hn::Vec<DI> start;
    if constexpr (kBlocks) {
      start = hn::TableLookupLanes(hn::LoadU(di, weights.start + r * kMaxBlocks + w / Layout::kWordsPerBlock),
                                   indices);
    } else {
      start = hn::Set(di, weights.start[r]);
    }
    for (auto& x : acc[r]) x = start;
  }
  for (int i = 0; i < pairs; ++i, pair += kBlocks ? kMaxBlocks : 1) {
    ahead.step();
    const auto a = load_words<Layout>(di, rows[2 * i], w), b = load_words<Layout>(di, rows[2 * i + 1], w);
    const auto low = hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(b)), hn::BitCast(d16, a));
    const hn::RebindToUnsigned<DI> du;
    const auto high =
        hn::OddEven(hn::BitCast(d16, b), hn::BitCast(d16, hn::ShiftRight<16>(hn::BitCast(du, a))));
    hn::Vec<DI> weight[kQueries];
    for (int r = 0; r < kQueries; ++r) {
      if constexpr (kBlocks) {
        weight[r] = hn::TableLookupLanes(hn::LoadU(di, pair + r * stride), indices);
      } else {
        weight[r] = hn::Set(di, pair[r * stride]);
      }
    }
    const auto add_slot = [&](auto index) HWY_ATTR {
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
template <class Layout, int kQueries, class DI>
void add_code_values(DI di, const std::byte* const* rows, int pairs, const CodedWeights& weights,
                     int head_dim, Ahead& ahead, float* sum) {
  const hn::RebindToFloat<DI> df;
  constexpr int kSlots = 32 / Layout::kBits;
  const int lanes = static_cast<int>(hn::Lanes(di)), words = head_dim * Layout::kBits / 32;
  for (int w = 0; w < words; w += lanes) {
    HWY_ALIGN float sums[kQueries][kSlots][hn::MaxLanes(df)];
    const auto group = [&](auto index) HWY_ATTR {
      constexpr int kFirst = 4 * decltype(index)::value;
      hn::Vec<DI> acc[kQueries][4];
      sum_slots<Layout, kFirst, kQueries>(di, rows, pairs, w, weights, ahead, acc);
      for (int r = 0; r < kQueries; ++r) {
        const auto step = hn::Set(df, weights.step[r]);
        for (int slot = 0; slot < 4; ++slot) {
          const auto values = hn::Mul(hn::ConvertTo(df, acc[r][slot]), step);
          if constexpr (Layout::kWordsPerBlock == 0) {
            float* at = sum + r * head_dim + (kFirst + slot) * words + w;
            hn::StoreU(hn::Add(hn::LoadU(df, at), values), df, at);
          } else {
            hn::Store(values, df, sums[r][kFirst + slot]);
          }
        }
      }
    };
    [&]<int... kGroup>(std::integer_sequence<int, kGroup...>) HWY_ATTR {
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
