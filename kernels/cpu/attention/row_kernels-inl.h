// The loops over the rows of a tile, a source file each, so that they compile side by side: what attention_simd.cc
// calls. Private to kernels/cpu; declared once a target.
//
//   float_scores.cc, float_values.cc       f32, f16, bf16, fp8
//   token_scores.cc, token_values.cc       codes with a scale a row
//   channel_scores.cc                      codes with a scale a channel; such values are decoded instead
//   block_scores.cc, block_values.cc       codes with a scale a block: q8_0, q4_0, and integer levels
//   int8_values.cc                         the same with weights of 8 bits; with such queries, block_scores.cc
#if defined(KV_ROW_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_ROW_KERNELS_INL_H_
#undef KV_ROW_KERNELS_INL_H_
#else
#define KV_ROW_KERNELS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/attention/float_work.h"
#include "kernels/cpu/attributes-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

// Scores of a run's rows, of finite queries, -> scores [queries, count], kScoreStride apart; up to kRowPadding
// numbers more are written. False, and nothing of use done, if a scale is not finite: such rows are for the
// decoding path, which keeps NaN.
bool score_tokens(const TileSide& side, const Run& run, const CodeWork& work, float* scores);
bool score_channels(const TileSide& side, const Run& run, const CodeWork& work, float* scores);
bool score_blocks(const TileSide& side, const Run& run, const CodeWork& work, float* scores);
bool score_blocks_int8(const TileSide& side, const Run& run, const CodeWork& work, float* scores);

// Adds a run's values, weighted with p [queries, count], kScoreStride apart, to the task's sums. False, and
// nothing done, if a scale is not finite.
bool add_tokens(const TileSide& side, const Run& run, const CodeWork& work, const float* p);
bool add_blocks(const TileSide& side, const Run& run, const CodeWork& work, const float* p);
bool add_blocks_int8(const TileSide& side, const Run& run, const CodeWork& work, const float* p);

// Scores of `rows`, padded to a multiple of kKeys with any readable rows -> scores [queries, kScoreStride], of which
// the padding's columns are garbage.
void score_floats(const FloatRows& rows, const FloatWork& work, PackedQueries& packed, float* scores);
// `rows` under weights p [queries, kScoreStride], added to the task's sums. p may be changed.
void add_floats(const FloatRows& rows, const FloatWork& work, SumOrder& order, float* p);
// Brings the task's sums back into the order of a row's elements.
void restore_order(const FloatWork& work, SumOrder& order);

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
