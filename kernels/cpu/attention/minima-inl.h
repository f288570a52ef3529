// Blocks under a scale and a minimum (q4_1, q5_1) as those of formats without minima, and the term that is left: what the
// middle code stands for, times sums of queries and of weights. Products of codes that begin at 0 would be large beside
// their differences. Private to kernels/cpu; compiled once a target.
#if defined(KV_MINIMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_MINIMA_INL_H_
#undef KV_MINIMA_INL_H_
#else
#define KV_MINIMA_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attention/codes-inl.h"
#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline bool has_minima(const Encoding& e) { return descriptor_of(e.format).middle_code > 0; }

template <class Blocks>
void split_rows(const TileSide& from, const Run& run, Blocks blocks, SplitScales& to) {
  for (int i = run.first, row = 0; row < run.count; ++i, ++row) {
    uint16_t* scale = to.scale + i * blocks;
    for (int b = 0; b < blocks; ++b) {
      const auto both = load<uint32_t>(from.meta[i], b);
      scale[b] = to.column[0][b * kTileRows + row] = static_cast<uint16_t>(both);
      to.column[1][b * kTileRows + row] = static_cast<uint16_t>(both >> 16);
    }
    to.side.row[i] = from.row[i];
    to.side.meta[i] = reinterpret_cast<const std::byte*>(scale);
  }
}

// -> to.side, and to.middle; the side of a format without minima stays.
inline const TileSide& split_minima(const TileSide& from, const Encoding& e, const Run& run, int head_dim,
                                    SplitScales& to) {
  if (!has_minima(e)) return from;
  const int blocks = head_dim / kGgmlBlock;
  if (blocks == 4) {
    split_rows(from, run, std::integral_constant<int, 4>(), to);  // the rule, in a loop without a loop in it
  } else {
    split_rows(from, run, blocks, to);
  }
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<uint16_t, decltype(d)> half;
  const auto code = hn::Set(d, descriptor_of(e.format).middle_code);
  for (int i = 0; i < blocks * kTileRows; i += static_cast<int>(hn::Lanes(d))) {
    const auto scale = widen_half(d, hn::Load(half, to.column[0] + i));
    hn::Store(hn::MulAdd(scale, code, widen_half(d, hn::Load(half, to.column[1] + i))), d, to.middle + i);
  }
  return to.side;
}

// Adds the sum of each query's elements of a block, times what the rows' middle codes of that block stand for.
inline void add_middles_to_scores(const SplitScales& of, int count, const CodeWork& work, float* scores) {
  for (int64_t r = 0; r < work.task.queries; ++r, scores += kScoreStride) {
    const float* q = work.task.query(r, work.head_dim);
    const float* middle = of.middle;
    for (int i = 0; i < work.head_dim; i += kGgmlBlock, middle += kTileRows) {
      const float sum = sum_of(q + i, kGgmlBlock);
      for (int j = 0; j < count; ++j) scores[j] += sum * middle[j];
    }
  }
}

// Adds what the rows' middle codes stand for, under weights p [queries, kScoreStride] to the elements of each block.
inline void add_middles_to_values(const SplitScales& of, int count, const CodeWork& work, const float* p) {
  const hn::CappedTag<float, 16> d;
  for (int64_t r = 0; r < work.task.queries; ++r, p += kScoreStride) {
    float* sum = work.task.sum + r * work.head_dim;
    const float* middle = of.middle;
    for (int i = 0; i < work.head_dim; i += kGgmlBlock, middle += kTileRows) {
      auto products = hn::Zero(d);
      for (int j = 0; j < count; j += static_cast<int>(hn::Lanes(d))) {
        const auto rows = hn::FirstN(d, static_cast<size_t>(count - j));
        products = hn::MulAdd(hn::IfThenElseZero(rows, hn::LoadU(d, p + j)),
                              hn::IfThenElseZero(rows, hn::LoadU(d, middle + j)), products);
      }
      const float all = hn::GetLane(hn::SumOfLanes(d, products));
      for (int x = 0; x < kGgmlBlock; ++x) sum[i + x] += all;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
