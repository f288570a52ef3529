// Decode attention at the speed of memory: one token, a block of query heads, one stretch of rows.
//
// The warps of a block take tiles of rows in turn. Each has a ring of tiles of its own, filled by
// asynchronous copies some tiles ahead, so that no warp waits for another until the end. In a warp head_dim /
// 8 lanes share a row, and the rest take other rows; all query heads use a row while it is there. Rows stay
// encoded until they reach registers, scales stay out of the loops over elements, and the softmax is rescaled
// once in a few rows.
//
// After FlashDecoding (Dao et al. 2023) and FlashInfer (Ye et al. 2025, arXiv:2501.01005).
#pragma once

#include "kernels/cuda/params.h"
#include "kernels/cuda/tile.h"

namespace kv::cuda {

inline constexpr int kDecodeWarps = 4;

// Below every score, and still finite, so that the difference of two of them is 0.
inline constexpr float kNoScore = -1e30f;

// What a lane knows of its rows: for each query head the running softmax and the octet of its weighted sum.
template <class K, class V, int kHeadDim, int kGroup>
struct DecodeLane {
  using Shape = TileShape<K, V, kHeadDim>;
  static constexpr int kBatch = Shape::kPasses < 4 ? Shape::kPasses : 4;  // rows between two rescalings

  int octet, first_row;  // of the lane's row parts; its first row in a tile
  float q[kGroup][kOctet], q_sum[kGroup];
  float max[kGroup], sum[kGroup], zero[kGroup], values[kGroup][kOctet];

  // q [heads, head_dim]; heads beyond are zeros.
  KV_DEVICE void start(const float* from, int heads) {
    octet = simt::lane() % Shape::kLanes;
    first_row = simt::lane() / Shape::kLanes;
    KV_UNROLL
    for (int g = 0; g < kGroup; ++g) {
      max[g] = kNoScore;
      sum[g] = zero[g] = q_sum[g] = 0.0f;
      KV_UNROLL
      for (int i = 0; i < kOctet; ++i) {
        q[g][i] = g < heads ? from[g * kHeadDim + octet * kOctet + i] * score_scale(kHeadDim) : 0.0f;
        q_sum[g] += q[g][i];
        values[g][i] = 0.0f;
      }
      q_sum[g] = sum_of_row(q_sum[g]);
    }
  }

  // The sum over the lanes that share a row.
  KV_DEVICE static float sum_of_row(float x) {
    KV_UNROLL
    for (int mask = Shape::kLanes / 2; mask > 0; mask /= 2) x += simt::shuffle_xor(x, mask);
    return x;
  }

  KV_DEVICE void load_k(const std::byte* tile, int row, float (&x)[kOctet]) const {
    K::codes(tile + row * Shape::kKBytes, octet, x, kHeadDim);
    if constexpr (K::kScaling == Scaling::kChannel) {
      float scale[kOctet], offset[kOctet];
      F16::codes(tile + Shape::kUnitMetaAt, octet, scale);
      F16::codes(tile + Shape::kUnitMetaAt + 2 * kHeadDim, octet, offset);
      KV_UNROLL
      for (int i = 0; i < kOctet; ++i) x[i] = simt::fma(x[i], scale[i], offset[i]);
    }
  }

  // The scores of one of the lane's rows; -inf from row `rows` of the tile on.
  KV_DEVICE void scores(const std::byte* tile, int row, int rows, float (&s)[kGroup]) const {
    float x[kOctet];
    load_k(tile, row, x);
    ScaleZero meta{1.0f, 0.0f};
    if constexpr (Shape::kKMeta > 0) {
      meta = K::scale(tile + Shape::kKMetaAt + row * Shape::kKMeta, octet);
    }
    KV_UNROLL
    for (int g = 0; g < kGroup; ++g) {
      float dot = 0.0f;
      KV_UNROLL
      for (int i = 0; i < kOctet; ++i) dot = simt::fma(q[g][i], x[i], dot);
      if constexpr (K::kScaling == Scaling::kBlock) dot *= meta.scale;
      dot = sum_of_row(dot);
      if constexpr (K::kScaling == Scaling::kRow) dot = simt::fma(dot, meta.scale, meta.zero * q_sum[g]);
      s[g] = row < rows ? dot : -INFINITY;
    }
  }

  KV_DEVICE void rescale(const float (&s)[kBatch][kGroup]) {
    KV_UNROLL
    for (int g = 0; g < kGroup; ++g) {
      float higher = max[g];
      KV_UNROLL
      for (int b = 0; b < kBatch; ++b) higher = s[b][g] > higher ? s[b][g] : higher;
      const float shrink = simt::exp2(max[g] - higher);
      max[g] = higher;
      sum[g] *= shrink;
      zero[g] *= shrink;
      KV_UNROLL
      for (int i = 0; i < kOctet; ++i) values[g][i] *= shrink;
    }
  }

  KV_DEVICE void add_values(const std::byte* tile, int row, const float (&s)[kGroup]) {
    float v[kOctet];
    V::codes(tile + Shape::kVAt + row * Shape::kVBytes, octet, v, kHeadDim);
    ScaleZero meta{1.0f, 0.0f};
    if constexpr (Shape::kVMeta > 0) {
      meta = V::scale(tile + Shape::kVMetaAt + row * Shape::kVMeta, octet);
    }
    KV_UNROLL
    for (int g = 0; g < kGroup; ++g) {
      const float p = simt::exp2(s[g] - max[g]), weight = p * meta.scale;
      sum[g] += p;
      zero[g] = simt::fma(p, meta.zero, zero[g]);
      KV_UNROLL
      for (int i = 0; i < kOctet; ++i) values[g][i] = simt::fma(weight, v[i], values[g][i]);
    }
  }

  // logits [heads, stride] at the tile's first row, or null.
  KV_DEVICE void add_tile(const std::byte* tile, int rows, float* logits, int64_t stride, int heads) {
    KV_UNROLL
    for (int pass = 0; pass < Shape::kPasses; pass += kBatch) {
      float s[kBatch][kGroup];
      KV_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const int row = (pass + b) * Shape::kRowsAtOnce + first_row;
        scores(tile, row, rows, s[b]);
        if (logits && octet == 0 && row < rows) {
          for (int g = 0; g < heads; ++g) logits[g * stride + row] = s[b][g];
        }
      }
      rescale(s);
      KV_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        add_values(tile, (pass + b) * Shape::kRowsAtOnce + first_row, s[b]);
      }
    }
  }
};

// The lanes' results, in shared memory: for each group of lanes that shared rows, and each query head, the
// values, the maximum and the sum.
template <class K, class V, int kHeadDim, int kGroup>
struct LaneResults {
  using Shape = TileShape<K, V, kHeadDim>;
  static constexpr int kParts = kDecodeWarps * Shape::kRowsAtOnce, kStride = kHeadDim + 2;
  static constexpr int kBytes = kParts * kGroup * kStride * 4;

  float* all;

  KV_DEVICE float* at(int part, int g) const { return all + (part * kGroup + g) * kStride; }

  KV_DEVICE void put(const DecodeLane<K, V, kHeadDim, kGroup>& lane) const {
    KV_UNROLL
    for (int g = 0; g < kGroup; ++g) {
      float* to = at(simt::warp() * Shape::kRowsAtOnce + lane.first_row, g);
      KV_UNROLL
      for (int i = 0; i < kOctet; ++i) to[lane.octet * kOctet + i] = lane.values[g][i] + lane.zero[g];
      if (lane.octet != 0) continue;
      to[kHeadDim] = lane.max[g];
      to[kHeadDim + 1] = lane.sum[g];
    }
  }

  // Adds the parts up in their order; `first` is the partial result of query head 0.
  KV_DEVICE void merge(const Partials& to, int64_t first, int heads) const {
    for (int element = simt::thread(); element < heads * kHeadDim; element += simt::threads()) {
      const int g = element / kHeadDim, d = element % kHeadDim;
      float max = kNoScore, sum = 0.0f, value = 0.0f;
      for (int part = 0; part < kParts; ++part)
        max = at(part, g)[kHeadDim] > max ? at(part, g)[kHeadDim] : max;
      for (int part = 0; part < kParts; ++part) {
        const float factor = simt::exp2(at(part, g)[kHeadDim] - max);
        sum = simt::fma(at(part, g)[kHeadDim + 1], factor, sum);
        value = simt::fma(at(part, g)[d], factor, value);
      }
      to.values[(first + g) * kHeadDim + d] = value;
      if (d != 0) continue;
      to.max[first + g] = sum > 0.0f ? max : -INFINITY;
      to.sum[first + g] = sum;
    }
  }
};

template <class K, class V, int kHeadDim, int kGroup>
constexpr int decode_shared_bytes() {
  const int ring = kDecodeWarps * TileShape<K, V, kHeadDim>::kStages * TileShape<K, V, kHeadDim>::kBytes;
  const int results = LaneResults<K, V, kHeadDim, kGroup>::kBytes;
  return ring > results ? ring : results;
}

// Grid: [items, ceil(group / kGroup)]; kDecodeWarps warps, decode_shared_bytes. Problems of one token (n = 1)
// that see all their rows. A per-channel K needs groups that are a multiple of 32 rows.
template <class K, class V, int kHeadDim, int kGroup>
KV_KERNEL KV_LAUNCH_BOUNDS(kDecodeWarps* simt::kWarp, 3) decode(DecodeParams params) {
  using Shape = TileShape<K, V, kHeadDim>;
  const WorkItem item = params.items[simt::block_x()];
  const Problem& p = params.problems[item.problem];
  const int first_head = simt::block_y() * kGroup;
  const int heads = params.group - first_head < kGroup ? params.group - first_head : kGroup;
  const TileRing<K, V, kHeadDim> ring{simt::shared_memory() + simt::warp() * Shape::kStages * Shape::kBytes,
                                      params.layout, params.tail ? p.tail : p.pages, item.end};
  const auto first_row = [&](int turn) {
    return item.begin + (turn * kDecodeWarps + simt::warp()) * Shape::kRows;
  };
  const auto fetch = [&](int turn) {
    if (first_row(turn) < item.end) ring.issue(turn % Shape::kStages, first_row(turn));
    simt::commit_copies();
  };
  DecodeLane<K, V, kHeadDim, kGroup> lane;
  lane.start(p.q + int64_t{first_head} * kHeadDim, heads);
  const int64_t stride = rows_of(p);
  float* logits = p.logits ? p.logits + first_head * stride + (params.tail ? p.rows : 0) : nullptr;
  for (int turn = 0; turn < Shape::kStages - 1; ++turn) fetch(turn);
  for (int turn = 0; first_row(turn) < item.end; ++turn) {
    fetch(turn + Shape::kStages - 1);
    simt::wait_copies<Shape::kStages - 1>();
    simt::sync_warp();  // lanes read what others copied
    const int row = first_row(turn);
    lane.add_tile(ring.tile(turn % Shape::kStages), item.end - row, logits ? logits + row : nullptr, stride,
                  heads);
    simt::sync_warp();  // and the next copies overwrite it
  }
  simt::sync_block();  // from here on the rings' room is the results'
  const LaneResults<K, V, kHeadDim, kGroup> results{reinterpret_cast<float*>(simt::shared_memory())};
  results.put(lane);
  simt::sync_block();
  results.merge(params.partials, partial_of(p, params.group, item.split, first_head), heads);
}

}  // namespace kv::cuda
