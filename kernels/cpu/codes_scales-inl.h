// Scales and zero points of a run's rows of integer codes, brought together from where they lie. Private to
// kernels/cpu; compiled once a target.
#if defined(KV_CODES_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV_CODES_SCALES_INL_H_
#undef KV_CODES_SCALES_INL_H_
#else
#define KV_CODES_SCALES_INL_H_
#endif

#include <algorithm>
#include <cstring>

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
  bool all = true;
  for (int j = 1; j < kRowStep; ++j) all &= meta[j] == meta[0] + j * stride;
  return all;
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

// [groups of blocks, rows, blocks of a group]: groups of four, or of two where a row has no more.
struct BlockScales {
  int together;                                        // blocks of a group
  HWY_ALIGN float scale[kMaxBlocks * kTileRows + 16];  // vectors may look past the last
  // The group's scales from a row's block on.
  const float* at(int row, int block) const {
    return scale + (block & -together) * kTileRows + row * together + (block & (together - 1));
  }
  float* group(int g) { return scale + g * kTileRows * together; }
  const float* group(int g) const { return scale + g * kTileRows * together; }
};

// False if one of [count] is not finite.
inline bool all_finite(const float* x, int count) {
  const hn::CappedTag<float, 16> df;
  auto probe = hn::Zero(df);
  for (int i = 0; i < count; i += static_cast<int>(hn::Lanes(df)))
    probe = hn::MulAdd(hn::Load(df, x + i), hn::Zero(df), probe);
  return hn::AllTrue(df, hn::Eq(probe, hn::Zero(df)));
}

// Rows of one group: `meta` [count] -> out [whole_steps(count), kBlocks], zeros behind.
template <int kBlocks>
void load_short_scales(const std::byte* const* meta, int count, float* out) {
  constexpr int64_t kRow = kBlocks * sizeof(uint16_t);
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<uint16_t, decltype(df)> half;
  for (int j = 0; j < count; j += kRowStep, out += kRowStep * kBlocks) {
    uint16_t stored[kRowStep * kBlocks];  // in the order of memory
    const uint16_t* from = stored;
    if (j + kRowStep <= count && in_a_row(meta + j, kRow)) {
      from = reinterpret_cast<const uint16_t*>(meta[j]);
    } else {
      const int valid = std::min(kRowStep, count - j);
      for (int i = 0; i < valid; ++i) std::memcpy(stored + i * kBlocks, meta[j + i], kRow);
      std::fill(stored + valid * kBlocks, stored + kRowStep * kBlocks, uint16_t{0});
    }
    for (int i = 0; i < kRowStep * kBlocks; i += static_cast<int>(hn::Lanes(df)))
      hn::Store(widen_half(df, hn::LoadU(half, from + i)), df, out + i);
  }
}

// A row's scales first … first + 3, 0 beyond `blocks`.
inline hn::Vec<hn::CappedTag<float, 4>> load_four_scales(const std::byte* meta, int first, int blocks) {
  const hn::CappedTag<float, 4> df;
  const hn::Rebind<uint16_t, decltype(df)> half;
  uint16_t stored[4] = {};
  if (first + 4 <= blocks) {
    std::memcpy(stored, meta + first * 2, sizeof(stored));
  } else {
    for (int i = first; i < blocks; ++i) stored[i - first] = kv::load<uint16_t>(meta, i);
  }
  return widen_half(df, hn::LoadU(half, stored));
}

// `meta` [count] -> out, zeros behind, up to whole_steps(count). False if one is not finite.
inline bool load_block_scales(const std::byte* const* meta, int count, int blocks, BlockScales& out) {
  out.together = blocks == 2 ? 2 : 4;
  const int padded = whole_steps(count);
  if (blocks == 2) {
    load_short_scales<2>(meta, count, out.scale);
  } else if (blocks == 4) {
    load_short_scales<4>(meta, count, out.scale);
  } else {
    const hn::CappedTag<float, 4> df;
    for (int j = 0; j < padded; ++j) {
      for (int g = 0; 4 * g < blocks; ++g)
        hn::Store(j < count ? load_four_scales(meta[j], 4 * g, blocks) : hn::Zero(df), df,
                  out.group(g) + 4 * j);
    }
  }
  bool finite = true;
  for (int g = 0; g * out.together < blocks; ++g) finite &= all_finite(out.group(g), padded * out.together);
  return finite;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
