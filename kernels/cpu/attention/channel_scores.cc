// Scores of rows of interleaved codes with a scale a channel (KIVI's keys), compiled once for each instruction set.
// scale[d] goes into q once a unit.
#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/channel_scores.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/interleaved_scores-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Queries first … first + kQueries - 1 times a unit's scales, coded; what is to be added to each score, for zero
// points and since codes are taken from the grids' middles, -> offset. False if a scale is not finite.
template <int kBits, int kQueries>
bool code_scaled_queries(const std::byte* meta, int first, const CodeWork& work) {
  CodeScratch& s = work.scratch;
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<uint16_t, decltype(df)> half;
  const auto* from = reinterpret_cast<const uint16_t*>(meta);
  const int head_dim = work.head_dim;
  const auto middle = hn::Set(df, static_cast<float>(kMiddle<kBits>));
  const float* q = work.task.query(first, head_dim);
  auto probe = hn::Zero(df);
  hn::Vec<decltype(df)> offset[kQueries], top[kQueries];
  for (int r = 0; r < kQueries; ++r) offset[r] = top[r] = hn::Zero(df);
  for (int i = 0; i < head_dim; i += static_cast<int>(hn::Lanes(df))) {
    const auto scale = widen_half(df, hn::LoadU(half, from + i));  // up to 8 bits, they are f16
    const auto zero = hn::MulAdd(middle, scale, widen_half(df, hn::LoadU(half, from + head_dim + i)));
    probe = hn::MulAdd(scale, hn::Zero(df), probe);
    for (int r = 0; r < kQueries; ++r) {
      const auto x = hn::LoadU(df, q + r * head_dim + i), scaled = hn::Mul(x, scale);
      hn::Store(scaled, df, s.scaled_queries + r * kMaxHeadDim + i);
      top[r] = hn::Max(top[r], hn::Abs(scaled));
      offset[r] = hn::MulAdd(x, zero, offset[r]);
    }
  }
  if (!hn::AllTrue(df, hn::Eq(probe, hn::Zero(df)))) return false;
  float largest[kQueries];
  largest_of_lanes<kQueries>(df, top, largest);
  for (int r = 0; r < kQueries; ++r) {
    const auto sums = code_interleaved_query<kBits>(s.scaled_queries + r * kMaxHeadDim, largest[r], head_dim,
                                                    first + r, work.queries);
    const auto middles = hn::Set(df, static_cast<float>(-kMiddle<kBits>) * work.queries.step[first + r]);
    offset[r] = hn::MulAdd(hn::ConvertTo(df, sums), middles, offset[r]);
  }
  sums_of_lanes<kQueries>(df, offset, work.queries.offset + first);
  return true;
}

// A unit at a time.
template <int kBits>
bool score_channels_of(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  const std::byte *const *keys = side.row + run.first, *const *meta = side.meta + run.first;
  const int count = run.count, group = run.k.group;
  work.queries.coded_for.reset();
  begin_scores<kBits>(count, work);
  const hn::ScalableTag<float> df;
  const std::byte* scratch[kPaddedRows];
  bool finite = true;
  for (int done = 0, rows = 0; finite && done < count; done += rows) {
    for (rows = std::min(group, count - done); meta[done + rows - 1] != meta[done];) --rows;
    const std::byte* const* unit_keys = pad_rows(keys + done, rows, scratch);
    for_query_blocks(static_cast<int>(work.task.queries), [&](auto some, int first) KV_ATTR {
      constexpr int kQueries = decltype(some)::value;
      finite = finite && code_scaled_queries<kBits, kQueries>(meta[done], first, work);
      if (!finite) return;
      score_rows<kBits, kQueries>(
          unit_keys, rows, work, first, scores + done, [&](int r, int, auto sums) KV_INLINE {
            return hn::MulAdd(hn::ConvertTo(df, sums), hn::Set(df, work.queries.step[r]),
                              hn::Set(df, work.queries.offset[r]));
          });
    });
  }
  return finite;
}

bool score_channels(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  bool done = false;
  with_bits(run.k.bits, [&](auto bits) KV_ATTR {
    done = score_channels_of<decltype(bits)::value>(side, run, work, scores);
  });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
