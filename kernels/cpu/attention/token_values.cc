// Weighted values of rows of interleaved codes with a scale a row: from their width to its loops.
#include "kernels/cpu/attention/code_work.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/token_values.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

// Highway's one-lane fallback is never picked (isa.cc): our own scalar path serves there.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/cpu/attention/interleaved_codes-inl.h"
#include "kernels/cpu/attention/row_kernels-inl.h"

KV_BEFORE_NAMESPACE();
namespace kv::cpu {
namespace HWY_NAMESPACE {

// token_values-inl.h
template <int kBits>
bool add_tokens_of(const TileSide& side, const Run& run, const CodeWork& work, const float* p);

bool add_tokens(const TileSide& side, const Run& run, const CodeWork& work, const float* p) {
  bool done = false;
  with_bits(run.v.bits,
            [&](auto bits) KV_ATTR { done = add_tokens_of<decltype(bits)::value>(side, run, work, p); });
  return done;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv::cpu
HWY_AFTER_NAMESPACE();
#endif
