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

// A group's scales of blocks first … of rows `meta` [count] -> out [whole_steps(count), blocks of a group],
// zeros behind. Bits holds those of a row. False if a scale is not finite.
template <class Bits>
bool load_group(const std::byte* const* meta, int first, int blocks, int count, float* out) {
  constexpr int kBlocks = sizeof(Bits) / sizeof(uint16_t);
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<uint16_t, decltype(df)> half;
  const int64_t offset = first * int64_t{sizeof(uint16_t)};
  const int valid = std::min(kBlocks, blocks - first);
  auto probe = hn::Zero(df);
  for (int j = 0; j < count; j += kRowStep, out += kRowStep * kBlocks) {
    Bits stored[kRowStep];  // in the order of memory
    const void* from = stored;
    if (blocks == kBlocks && j + kRowStep <= count && in_a_row(meta + j, sizeof(Bits))) {
      from = meta[j];
    } else {
      for (int i = 0; i < kRowStep; ++i) {
        stored[i] = 0;
        if (j + i >= count) continue;
        if (valid == kBlocks) {  // its own branch, where the size is known
          std::memcpy(stored + i, meta[j + i] + offset, sizeof(Bits));
        } else {
          std::memcpy(stored + i, meta[j + i] + offset, static_cast<size_t>(valid) * sizeof(uint16_t));
        }
      }
    }
    for (int i = 0; i < kRowStep * kBlocks; i += static_cast<int>(hn::Lanes(df))) {
      const auto scales = widen_half(df, hn::LoadU(half, static_cast<const uint16_t*>(from) + i));
      hn::Store(scales, df, out + i);
      probe = hn::MulAdd(scales, hn::Zero(df), probe);
    }
  }
  return hn::AllTrue(df, hn::Eq(probe, hn::Zero(df)));
}

// `meta` [count] -> out, zeros behind, up to whole_steps(count). False if one is not finite.
inline bool load_block_scales(const std::byte* const* meta, int count, int blocks, BlockScales& out) {
  out.together = blocks == 2 ? 2 : 4;
  if (blocks == 2) return load_group<uint32_t>(meta, 0, blocks, count, out.scale);
  bool finite = true;
  for (int g = 0; 4 * g < blocks; ++g)
    finite &= load_group<uint64_t>(meta, 4 * g, blocks, count, out.group(g));
  return finite;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();
#endif
