// Scores of rows of interleaved codes with a scale a row, compiled once for each instruction set.
#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/token_scores.cc"
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

template <int kBits>
bool score_tokens_of(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  CodeScratch& s = work.scratch;
  const Encoding& e = run.k;
  if (!load_row_scales(side.meta + run.first, run.count, e.affine, kMiddle<kBits>, s.rows)) return false;
  code_queries(e, work, [&](const float* q, float largest, int r) KV_ATTR {
    const auto sums = code_interleaved_query<kBits>(q, largest, work.head_dim, r, work.queries);
    work.queries.start_sum[r] =
        -kMiddle<kBits> * hn::GetLane(hn::SumOfLanes(hn::CappedTag<int32_t, 16>(), sums));
  });
  begin_scores<kBits>(run.count, work);
  const std::byte* scratch[kPaddedRows];
  const std::byte* const* keys = pad_rows(side.row + run.first, run.count, scratch);
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  for_query_blocks(static_cast<int>(work.task.queries), [&](auto some, int first) KV_ATTR {
    score_rows<kBits, decltype(some)::value>(
        keys, run.count, work, first, scores, [&](int r, int j, auto sums) KV_INLINE {
          const auto exact = hn::ConvertTo(df, hn::Add(sums, hn::Set(di, work.queries.start_sum[r])));
          const auto scaled =
              hn::Mul(exact, hn::Mul(hn::Set(df, work.queries.step[r]), hn::Load(df, s.rows.scale + j)));
          if (!e.affine) return scaled;
          return hn::MulAdd(hn::Load(df, s.rows.zero + j), hn::Set(df, work.queries.offset[r]), scaled);
        });
  });
  return true;
}

bool score_tokens(const TileSide& side, const Run& run, const CodeWork& work, float* scores) {
  bool done = false;
  with_bits(run.k.bits, [&](auto bits) KV_ATTR {
    done = score_tokens_of<decltype(bits)::value>(side, run, work, scores);
  });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
