// Split-KV attention over f32 rows, for which tensor cores are too coarse. head_dim / 8 lanes share a row, the rest of a warp
// takes other rows, and all of a block's queries use a row once it is in registers.
#pragma once

#include "kernels/cuda/attention/results.h"
#include "kernels/cuda/attention/tile.h"
#include "kernels/cuda/rows/octet.h"
#include "kernels/cuda/rows/params.h"

namespace kv::cuda {

// A lane has, for each query, the running softmax of its rows and an octet of their weighted sum.
template <int kHeadDim, int kQueries>
struct FloatLane {
  using Shape = TileShape<F32, F32, kHeadDim>;
  static constexpr int kLanes = kHeadDim / kOctet;  // lanes that share a row
  static constexpr int kRowsAtOnce = simt::kWarp / kLanes;
  static constexpr int kPasses = Shape::kRows / kRowsAtOnce;
  static constexpr int kBatch = kPasses < 4 ? kPasses : 4;  // rows between two rescalings
  static constexpr int kQueryBytes = 0;                     // shared memory
  static constexpr int kBlocksOfSm = 3;

  int octet, first_row;  // the lane's octet of a row; its first row in a tile
  int seen[kQueries];
  float q[kQueries][kOctet], max[kQueries], sum[kQueries] = {}, values[kQueries][kOctet] = {};

  KV_DEVICE void start(const BlockTask& task, std::byte*) {
    octet = simt::lane() % kLanes;
    first_row = simt::lane() / kLanes;
    const float* from = task.q + octet * kOctet;
    for (int i = 0; i < kQueries; ++i) {
      const bool there = i < task.queries;
      seen[i] = there ? task.seen(i) : 0;
      max[i] = kNoScore;
      for (int d = 0; d < kOctet; ++d) {
        q[i][d] = there ? from[i * kHeadDim + d] * score_scale(kHeadDim) : 0.0f;
      }
    }
  }

  KV_DEVICE void load(const std::byte* rows, int row, float (&x)[kOctet]) const {
    for (int half = 0; half < 2; ++half) {
      const auto four = read_words<4, 4 * kHeadDim>(rows, row, octet * kOctet + 4 * half);
      for (int i = 0; i < 4; ++i) x[4 * half + i] = std::bit_cast<float>(four.word[i]);
    }
  }

  // The scores of one of the lane's rows; -inf if a query does not see row `first` + row.
  KV_DEVICE void scores(const std::byte* tile, int row, int first, float (&s)[kQueries]) const {
    float x[kOctet];
    load(tile, row, x);
    for (int i = 0; i < kQueries; ++i) {
      float dot = 0.0f;
      for (int d = 0; d < kOctet; ++d) dot = simt::fma(q[i][d], x[d], dot);
      dot = simt::sum_of_lanes(dot, kLanes);
      s[i] = first + row < seen[i] ? dot : -INFINITY;
    }
  }

  KV_DEVICE void rescale(const float (&s)[kBatch][kQueries]) {
    for (int i = 0; i < kQueries; ++i) {
      float higher = max[i];
      for (int b = 0; b < kBatch; ++b) higher = simt::larger(higher, s[b][i]);
      const float factor = simt::exp2(max[i] - higher);
      max[i] = higher;
      sum[i] *= factor;
      for (int d = 0; d < kOctet; ++d) values[i][d] *= factor;
    }
  }

  KV_DEVICE void add_values(const std::byte* tile, int row, const float (&s)[kQueries]) {
    float v[kOctet];
    load(tile + Shape::kVAt, row, v);
    for (int i = 0; i < kQueries; ++i) {
      const float p = simt::exp2(s[i] - max[i]);
      sum[i] += p;
      for (int d = 0; d < kOctet; ++d) values[i][d] = simt::fma(p, v[d], values[i][d]);
    }
  }

  // Adds a tile that begins with row `first`.
  KV_DEVICE void add_tile(const std::byte* tile, int first, const BlockTask& task) {
    KV_UNROLL
    for (int pass = 0; pass < kPasses; pass += kBatch) {
      float s[kBatch][kQueries];
      for (int b = 0; b < kBatch; ++b) {
        const int row = (pass + b) * kRowsAtOnce + first_row;
        scores(tile, row, first, s[b]);
        for (int i = 0; task.problem.logits && octet == 0 && i < task.queries; ++i) {
          if (first + row < seen[i]) task.logits(i)[first + row] = s[b][i];
        }
      }
      rescale(s);
      for (int b = 0; b < kBatch; ++b) add_values(tile, (pass + b) * kRowsAtOnce + first_row, s[b]);
    }
  }

  using Results = BlockResults<kHeadDim, kDecodeWarps * kRowsAtOnce, kQueries>;

  KV_DEVICE void put(const Results& results) const {
    for (int i = 0; i < kQueries; ++i) {
      float* to = results.at(simt::warp() * kRowsAtOnce + first_row, i);
      for (int d = 0; d < kOctet; ++d) to[octet * kOctet + d] = values[i][d];
      if (octet != 0) continue;
      to[kHeadDim] = max[i];
      to[kHeadDim + 1] = sum[i];
    }
  }
};

}  // namespace kv::cuda
