// Scores of rows of codes in blocks (q8_0, q4_0) with queries of 8 bits under a step a block, as ggml's products of
// blocks have them; compiled once for each instruction set. The loop is block_scores.cc's, with four codes in a lane in
// place of two.
#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/int8_scores.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/int8_codes-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A block's elements x -> its codes; returns their step.
inline float code_block_int8(const float* x, int8_t* codes) {
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<int8_t, decltype(df)> narrow;
  const float largest = largest_magnitude(x, kGgmlBlock);
  const auto inverse = hn::Set(df, largest > 0.0f ? kLargestInt8 / largest : 0.0f);
  for (int i = 0; i < kGgmlBlock; i += static_cast<int>(hn::Lanes(df)))
    hn::StoreU(hn::DemoteTo(narrow, hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), inverse))), narrow,
               codes + i);
  return largest * (1.0f / kLargestInt8);
}

// Query r's elements x [head_dim] -> codes [vectors, byte planes, words of a 128-bit block, kPack, lanes], each word four
// times; starts and steps word by word, of two rows in a vector for both.
template <class F, int kPack, class DI>
void code_int8_query(DI, const float* x, int head_dim, int r, CodedQueries& out) {
  const typename OneRow<DI, kPack>::Tag di;
  const hn::Repartition<int8_t, decltype(di)> d8;
  constexpr int kPlanes8 = kBytePlanes<F::kBits>;
  const int lanes = static_cast<int>(hn::Lanes(di)), words = words_of(F::kBits, head_dim);
  HWY_ALIGN int8_t in_order[kMaxHeadDim], codes[HWY_MAX_BYTES];
  float step[kMaxBlocks];
  for (int b = 0; b < head_dim / kGgmlBlock; ++b)
    step[b] = code_block_int8(x + b * kGgmlBlock, in_order + b * kGgmlBlock);
  auto* q = reinterpret_cast<int32_t*>(out.q + r * 2 * kPack * head_dim);
  int32_t* first = out.start + r * CodedQueries::kStartStride;
  float* steps = out.block_step + r * CodedQueries::kStartStride;
  for (int w = 0; w < words; w += lanes) {
    auto sum = hn::Zero(di);
    for (int p = 0; p < kPlanes8; ++p) {
      for (int i = 0; i < 4 * lanes; ++i)
        codes[i] = in_order[F::element(head_dim, w + i / 4, i % 4 * kPlanes8 + p)];
      const auto word = hn::BitCast(di, hn::Load(d8, codes));
      q = store_spread<kPack>(di, word, q);
      sum = add_quad_products(di, hn::Set(di, 0x01010101), word, sum);
    }
    const auto start = sum_in_blocks(di, hn::Mul(sum, hn::Set(di, -kMiddle<F::kBits>)));
    for (int copy = 0; copy < kPack; ++copy, first += lanes, steps += lanes) {
      hn::StoreU(start, di, first);
      for (int i = 0; i < lanes; ++i) steps[i] = step[(w + i) / kWordsPerBlock<F>];
    }
  }
}

// All queries against keys [count] -> scores.
template <class F, int kPack, class DI>
HWY_NOINLINE void score_int8_rows(DI di, const std::byte* const* keys, int count, const BlockScales& scales,
                                  const CodedQueries& coded, int queries, int vectors,
                                  Prefetcher& shared_prefetcher, float* scores) {
  constexpr int kCount = kBytePlanes<F::kBits>;
  const hn::RebindToFloat<DI> df;
  const hn::RepartitionToNarrow<DI> d16;
  const int lanes = static_cast<int>(hn::Lanes(di));
  Prefetcher prefetcher = shared_prefetcher;  // a local one can live in registers
  const int stride = vectors * kCount * 4 * lanes;
  const auto places = scale_places<F, kPack>(di, scales.group_blocks);
  HWY_ALIGN float open[kQueryBlock][kTileRows / 4][hn::MaxLanes(df)];
  for (int j = 0; j < count; j += 4 * kPack) {
    const auto* q = reinterpret_cast<const int32_t*>(coded.q);
    for (int v = 0; v < vectors; ++v, q += kCount * 4 * lanes) {
      prefetcher.step();
      hn::Vec<decltype(d16)> words[4];
      hn::Vec<DI> planes[kCount][4];
      for (int i = 0; i < 4; ++i)
        words[i] = hn::BitCast(d16, load_rows<F, kPack>(di, keys + j + i, 4, v * lanes));
      transpose_words(d16, words);
      unroll<kCount>([&](auto index) KV_INLINE {
        constexpr int kPlane = decltype(index)::value;
        for (int i = 0; i < 4; ++i)
          planes[kPlane][i] = byte_plane<F::kBits, kPlane>(di, hn::BitCast(di, words[i]));
      });
      const auto scale = look_up(df, scales.at(j, v * lanes / kWordsPerBlock<F>), places);
      for (int r = 0; r < queries; ++r) {
        const int word = r * CodedQueries::kStartStride + v * lanes;
        const int32_t* now = q + r * stride;
        auto acc = hn::LoadU(di, coded.start + word);
        for (int p = 0; p < kCount; ++p) {
          for (int i = 0; i < 4; ++i, now += lanes)
            acc = add_quad_products(di, planes[p][i], hn::LoadU(di, now), acc);
        }
        const auto sums = hn::ConvertTo(df, acc);
        const auto steps = hn::Mul(scale, hn::LoadU(df, coded.block_step + word));
        float* at = open[r][j / (4 * kPack)];
        hn::Store(v == 0 ? hn::Mul(sums, steps) : hn::MulAdd(sums, steps, hn::Load(df, at)), df, at);
      }
    }
  }
  for (int r = 0; r < queries; ++r) {
    for (int j = 0; j < count; j += 4 * kPack)
      store_rows<kPack>(df, hn::Load(df, open[r][j / (4 * kPack)]), scores + r * kScoreStride + j);
  }
  shared_prefetcher = prefetcher;
}

template <class F, int kPack, class DI>
bool score_int8_of(DI di, const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  CodeScratch& s = work.scratch;
  const int count = run.count, queries = static_cast<int>(work.task.queries);
  if (!load_block_scales(side.meta + run.first, count, work.head_dim / kGgmlBlock, s.blocks)) return false;
  code_queries(run.k, work, [&](const float* q, float /*largest*/, int r) KV_ATTR {
    code_int8_query<F, kPack>(di, q, work.head_dim, r, work.queries);
  });
  const int vectors = words_of(F::kBits, work.head_dim) * kPack / static_cast<int>(hn::Lanes(di));
  work.prefetcher.begin_part(int64_t{(count + 4 * kPack - 1) / (4 * kPack)} * vectors);
  const std::byte* scratch[kPaddedRows];
  score_int8_rows<F, kPack>(di, pad_rows(side.row + run.first, count, scratch), count, s.blocks, work.queries,
                            queries, vectors, work.prefetcher, scores);
  return true;
}

bool score_blocks_int8(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  bool done = false;
  with_blocks(run.k, work.head_dim, [&](auto format, auto di, auto pack) KV_ATTR {
    done = score_int8_of<decltype(format), decltype(pack)::value>(di, side, run, work, scores);
  });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
