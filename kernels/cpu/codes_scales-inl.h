// Scales and zero points of a run's rows of integer codes, brought together from where they lie. Private to
// kernels/cpu; compiled once a target.
#if defined(KV_CODES_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_CODES_SCALES_INL_H_
#undef KV_CODES_SCALES_INL_H_
#else
#define KV_CODES_SCALES_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/attributes-inl.h"
#include "kernels/cpu/codes-inl.h"
#include "kernels/cpu/half-inl.h"
#include "kernels/cpu/tile.h"

KV_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kMaxBlocks = kMaxHeadDim / kGgmlBlock;
constexpr int kRowStep = 16;  // loops over a run's rows look at whole steps: what is behind the last is 0

inline int whole_steps(int rows) { return (rows + kRowStep - 1) / kRowStep * kRowStep; }

// ---- kToken: a scale a row ----

struct RowScales {
  HWY_ALIGN float scale[kTileRows];
  HWY_ALIGN float zero[kTileRows];  // the middle of the row's grid; only of affine rows
};

// Whether kRowStep numbers follow each other in memory, `stride` bytes apart.
inline bool in_a_row(const std::byte* const* meta, int64_t stride) {
  int64_t off = 0;  // no branches, no flags: a few vector operations
  for (int j = 1; j < kRowStep; ++j) off |= meta[j] - meta[0] - j * stride;
  return off == 0;
}

// `meta` [count] -> out, zeros behind. False if a scale is not finite.
inline bool load_row_scales(const std::byte* const* meta, int count, bool affine, int32_t middle,
                            RowScales& out) {
  const hn::CappedTag<float, kRowStep> df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const auto middle_code = hn::Set(df, static_cast<float>(middle));
  auto probe = hn::Zero(df);
  for (int j = 0; j < count; j += kRowStep) {
    float *scale = out.scale + j, *zero = out.zero + j;
    HWY_ALIGN float stored[2 * kRowStep];  // in the order of memory
    const float* from = stored;
    const int fields = affine ? 2 : 1;
    if (j + kRowStep <= count && in_a_row(meta + j, fields * int64_t{sizeof(float)})) {
      from = reinterpret_cast<const float*>(meta[j]);
    } else {
      for (int i = 0; i < kRowStep * fields; ++i)
        stored[i] = j + i / fields < count ? kv::load<float>(meta[j + i / fields], i % fields) : 0.0f;
    }
    for (int i = 0; i < kRowStep; i += lanes) {
      hn::Vec<decltype(df)> now;
      if (affine) {
        hn::Vec<decltype(df)> lowest;
        hn::LoadInterleaved2(df, from + 2 * i, now, lowest);
        hn::Store(hn::MulAdd(now, middle_code, lowest), df, zero + i);
      } else {
        now = hn::LoadU(df, from + i);
      }
      hn::Store(now, df, scale + i);
      probe = hn::MulAdd(now, hn::Zero(df), probe);
    }
  }
  return hn::AllTrue(df, hn::Eq(probe, hn::Zero(df)));
}

// ---- ggml's formats: a scale a block ----

// [blocks / 4, rows, 4]
struct BlockScales {
  HWY_ALIGN float scale[kMaxBlocks * kTileRows];
  float* group(int g) { return scale + g * kTileRows * 4; }
  const float* group(int g) const { return scale + g * kTileRows * 4; }
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

// Four rows of four scales that follow each other.
inline void load_sixteen_scales(const std::byte* meta, float* out) {
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<uint16_t, decltype(df)> half;
  for (int i = 0; i < 16; i += static_cast<int>(hn::Lanes(df)))
    hn::Store(widen_half(df, hn::LoadU(half, reinterpret_cast<const uint16_t*>(meta) + i)), df, out + i);
}

// False if one of [count] is not finite.
inline bool all_finite(const float* x, int count) {
  const hn::CappedTag<float, 16> df;
  auto probe = hn::Zero(df);
  for (int i = 0; i < count; i += static_cast<int>(hn::Lanes(df)))
    probe = hn::MulAdd(hn::Load(df, x + i), hn::Zero(df), probe);
  return hn::AllTrue(df, hn::Eq(probe, hn::Zero(df)));
}

// `meta` [count] -> out, zeros behind, up to whole eights of rows. False if one is not finite.
inline bool load_block_scales(const std::byte* const* meta, int count, int blocks, BlockScales& out) {
  constexpr int64_t kFour = 4 * sizeof(uint16_t);
  const hn::CappedTag<float, 4> df;
  const int padded = (count + 7) / 8 * 8;
  bool finite = true;
  for (int g = 0; 4 * g < blocks; ++g) {
    float* to = out.group(g);
    for (int j = 0; j < padded; j += 4) {
      const bool whole = blocks == 4 && j + 4 <= count;
      if (whole && meta[j + 1] == meta[j] + kFour && meta[j + 2] == meta[j] + 2 * kFour &&
          meta[j + 3] == meta[j] + 3 * kFour) {
        load_sixteen_scales(meta[j], to + j * 4);
        continue;
      }
      for (int i = j; i < j + 4; ++i) {
        const auto scales = i < count ? load_four_scales(meta[i] + g * kFour, blocks - 4 * g) : hn::Zero(df);
        hn::Store(scales, df, to + i * 4);
      }
    }
    finite &= all_finite(to, padded * 4);
  }
  return finite;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
