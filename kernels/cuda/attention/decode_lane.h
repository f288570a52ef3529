// A lane of the warps of decode.h and chunk.h, for rows of any format but f32.
#pragma once

#include "kernels/cuda/attention/decode_f32.h"
#include "kernels/cuda/attention/lane_channels.h"
#include "kernels/cuda/attention/operand.h"

namespace kv::cuda {

// A block's warps have either the same queries and different tiles, or the same tiles and different queries.
enum class WarpsShare { kQueries, kTiles };

// A lane has kSlots queries (g and, if there are 16, g + 8) and its own part of their softmax.
template <class K, class V, int kHeadDim, int kQueries, WarpsShare kShare = WarpsShare::kQueries>
struct DecodeLane {
  using Shape = TileShape<K, V, kHeadDim>;
  using Keys = MmaFragment<K, kHeadDim>;
  using Values = MmaFragment<V, kHeadDim>;
  using Query = SplitOperand<typename K::Number, kQueries, K::Number::kQueryParts>;
  using Weights = SplitOperand<typename V::Number, kQueries, 2>;
  static constexpr int kSlots = kQueries / 8;
  static constexpr int kRowTiles = Shape::kRows / 8, kChunksAtOnce = 32 / Shape::kRows;
  static constexpr int kChunks = kHeadDim / 16;
  // Queries lie in shared memory if registers are too few for them, or if each tile has scales that make the lane's own queries
  // of them.
  static constexpr bool kScalesQueries = K::kScaling == Scaling::kChannel;
  static constexpr bool kStoresQueries = kHeadDim > 128 || kScalesQueries ||
                                         (K::kScaling == Scaling::kBlock && kHeadDim * kQueries > 1024);
  static constexpr bool kOwnsQueries = kScalesQueries || !kStoresQueries;
  static constexpr int kQueryBytes = kStoresQueries ? kChunks * simt::kWarp * int{sizeof(Query)} : 0;
  // The largest numbers without register spills; 16-bit rows are limited by shared memory.
  static constexpr int kMostNumbers = K::kScaling == Scaling::kBlock || K::kBits == 16 ? 1024 : 2048;
  static constexpr int kNumbers = kHeadDim * kQueries * K::Number::kQueryParts;
  static constexpr bool kIsShort = kHeadDim == 64 && kNumbers <= (K::kBits == 16 ? 2048 : 1536);
  static constexpr int kBlocksOfSm = kIsShort ? 4 : kNumbers <= kMostNumbers ? 3 : 2;
  static constexpr int kStarts = K::kKeyMiddle ? Keys::kBlocks : 1;
  // The lane's rows of a tile: rows 2t and 2t + 1 of every 8.
  static constexpr int kOwnRows = 2 * kRowTiles;
  KV_DEVICE int row(int own) const { return own / 2 * 8 + 2 * t + own % 2; }
  using Scores = float[kOwnRows][kSlots];

  int g, t;
  int seen_by_all;                      // rows that need no mask; 0 if scores are kept
  Query q[kOwnsQueries ? kChunks : 1];  // 16 elements each
  Query* shared_q;                      // [kChunks, lanes], of this warp alone if warps share tiles
  float q_unit[kSlots];                 // factor of products with q
  float unscaled_unit[kSlots];          // factor of products with shared_q
  float q_zero[kSlots];  // kRow: the sum of q, in q_units; kChannel: the sum of q times the zero points
  float q_start[kStarts][kSlots];  // added to a block's products, whose codes are read as if they began at 0
  float max[kSlots], sum[kSlots] = {}, zero[kSlots] = {};
  float values[kHeadDim / 8][4] = {};

  // `shared`: kQueryBytes of shared memory, of the block or, if warps share tiles, of this warp.
  KV_DEVICE void start(const BlockTask& task, std::byte* shared) {
    shared_q = reinterpret_cast<Query*>(shared);
    g = simt::lane() / 4;
    t = simt::lane() % 4;
    for (float& one : max) one = kNoScore;
    // The few rows that a short chunk may mask are not worth a register more.
    seen_by_all =
        task.problem.logits ? 0 : task.seen_by_token(kShare == WarpsShare::kTiles ? task.first_token : 0);
    set_queries(task);
  }

  // Makes operands of the queries, scaled so that the largest element of each lies between 1 and 2, or as much higher as keeps
  // lower parts far above the least 16-bit number where codes are small.
  KV_DEVICE void set_queries(const BlockTask& task) {
    // Times the largest scale, at most 512 after LaneChannels::normalise(), this stays below 65504.
    constexpr float kLargest = kScalesQueries ? 32.0f : K::kKeyUnit > 1.0f ? 256.0f : 1.0f;
    constexpr int kOfBlock = 2 * Keys::kBlockPairs;
    float x[kSlots][kHeadDim / 4];
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      const int query = slot * 8 + g;
      const float* from = task.q + query * kHeadDim;
      float largest = 0.0f, total = 0.0f;
      KV_UNROLL
      for (int i = 0; i < kHeadDim / 4; ++i) {
        const int d = Keys::key_element(t, i / 2, i % 2);
        x[slot][i] = query < task.queries ? from[d] * score_scale(kHeadDim) : 0.0f;
        total += x[slot][i];
        largest = simt::larger(largest, std::fabs(x[slot][i]));
      }
      const float to_largest = power_to_one(largest_of_quad(largest)) * kLargest;
      unscaled_unit[slot] = one_over_power(to_largest);
      q_unit[slot] = unscaled_unit[slot] * K::kKeyUnit;
      q_zero[slot] = sum_of_quad(total) * one_over_power(q_unit[slot]);
      for (int block = 0; K::kKeyMiddle && block < kStarts; ++block) {
        float of_block = 0.0f;
        for (int i = 0; i < kOfBlock; ++i) of_block += x[slot][block * kOfBlock + i];
        q_start[block][slot] = sum_of_quad(of_block) * one_over_power(q_unit[slot]) * -K::kKeyMiddle;
      }
      for (float& one : x[slot]) one *= to_largest;
    }
    KV_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if constexpr (!kStoresQueries) {
        q[chunk].set(x, 4 * chunk);
      } else if (kShare == WarpsShare::kTiles || chunk % kDecodeWarps == simt::warp()) {
        shared_q[chunk * simt::kWarp + simt::lane()].set(x, 4 * chunk);
      }
    }
    if constexpr (kStoresQueries && kShare == WarpsShare::kQueries) simt::sync_block();
  }

  // Multiplies the queries with the channels' scales, for each tile, since a tile lies in one group. The queries times the
  // zero points are a matrix product as well.
  KV_DEVICE void scale_queries(const std::byte* scales) {
    LaneChannels<K, kHeadDim> zeros, steps;
    zeros.read(t, scales + 2 * kHeadDim);
    steps.read(t, scales);
    const float one_over_power = steps.normalise(scales);
    float c[4] = {};
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const Query own = shared_q[chunk * simt::kWarp + simt::lane()];
      q[chunk] = own.times({steps.pair[2 * chunk], steps.pair[2 * chunk + 1]});
      own.multiply({zeros.pair[2 * chunk], zeros.pair[2 * chunk + 1]}, c);
    }
    for (int slot = 0; slot < kSlots; ++slot) {
      q_zero[slot] = product<kQueries>(c, slot, 0) * unscaled_unit[slot];
      q_unit[slot] = unscaled_unit[slot] * K::kKeyUnit * one_over_power;
    }
  }

  KV_DEVICE const Query& query(int chunk) const {
    return kOwnsQueries ? q[kOwnsQueries ? chunk : 0] : shared_q[chunk * simt::kWarp + simt::lane()];
  }

  KV_DEVICE static ScaleZero k_scale(const std::byte* tile, int row, int block) {
    return K::scale(tile + Shape::kKMetaAt + row * Shape::kKMeta, block, true);
  }
  KV_DEVICE static ScaleZero v_scale(const std::byte* tile, int row, int block) {
    return V::scale(tile + Shape::kVMetaAt + row * Shape::kVMeta, block, false);
  }

  // The tile's scores, which score() brings to log2 units.
  KV_DEVICE void scores(const std::byte* tile, Scores& s) const {
    constexpr int kSteps = (Keys::kTwoWords ? 2 : kChunksAtOnce) * Keys::kPairs;
    float c[kRowTiles][4];
    KV_UNROLL
    for (int first = 0; first < kHeadDim / 8; first += kSteps) {
      uint32_t word[kSteps / Keys::kPairs * kRowTiles];
      if constexpr (Keys::kTwoWords) {
        read_two_words<K, kHeadDim>(tile, first / Keys::kPairs, word);
      } else {
        load_chunk<Shape::kRows, Shape::kKBytes, false>(tile, first / Keys::kPairs, word);
      }
      KV_UNROLL
      for (int pair = 0; pair < kSteps; pair += 2) {
        const int at = first + pair, block = at / Keys::kBlockPairs;
        for (int n = 0; n < kRowTiles; ++n) {
          if (at % Keys::kBlockPairs == 0) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.0f;
          const auto operand = [&](int own) {
            return K::pair(word[own / Keys::kPairs * kRowTiles + n], own % Keys::kPairs, true);
          };
          query(at / 2).multiply({operand(pair), operand(pair + 1)}, c[n]);
          if ((at + 2) % Keys::kBlockPairs == 0) scale_products(tile, 2 * n, block, c[n], s);
        }
      }
    }
  }

  // Turns a block's products with the lane's rows `first` and first + 1 into scores.
  KV_DEVICE void scale_products(const std::byte* tile, int first, int block, const float (&c)[4],
                                Scores& s) const {
    for (int b = 0; b < 2; ++b) {
      const ScaleZero meta = k_scale(tile, row(first + b), block);
      for (int slot = 0; slot < kSlots; ++slot) {
        float& own = s[first + b][slot];
        float dot = product<kQueries>(c, slot, b);
        if constexpr (K::kKeyMiddle) dot += q_start[block][slot];
        if (block > 0) {
          own = simt::fma(dot, meta.scale, own);
        } else {
          own = K::kKeyZero ? simt::fma(meta.zero, q_zero[slot], dot * meta.scale) : dot * meta.scale;
        }
      }
    }
  }

  KV_DEVICE static float largest_scale(const std::byte* tile, int row) {
    float largest = std::fabs(v_scale(tile, row, 0).scale);
    for (int block = 1; block < Values::kBlocks; ++block) {
      largest = simt::larger(largest, std::fabs(v_scale(tile, row, block).scale));
    }
    return largest;
  }

  // In log2 units.
  KV_DEVICE float score(int slot, float s) const {
    return simt::fma(s, q_unit[slot], K::kScaling == Scaling::kChannel ? q_zero[slot] : 0.0f);
  }

  // Turns scores into weights, without the scales of V.
  KV_DEVICE void weigh(const std::byte* tile, const Scores& s, Scores& p) {
    float largest[kSlots], total[kSlots];
    if (simt::any(exponentials(tile, s, p, largest, total))) {
      raise_max(tile, s, largest);
      exponentials(tile, s, p, largest, total);
    }
    for (int i = 0; V::kValueZero && i < kOwnRows; ++i) {
      const float row_zero = v_scale(tile, row(i), 0).zero;
      for (int slot = 0; slot < kSlots; ++slot) zero[slot] = simt::fma(p[i][slot], row_zero, zero[slot]);
    }
    for (int slot = 0; slot < kSlots; ++slot) sum[slot] += total[slot];
  }

  // `max` follows the largest score only when a weight, times its row's scale of V, exceeds this: until then weights
  // are so much larger than 1, which 16 bits can hold, and nothing is multiplied. (FlashAttention-4 does so.)
  // But weights of bfloat16 have few bits, and the largest is exact only as 1.
  static constexpr float kMostWeight = V::Number::kQueryParts > 2 ? 1.0f : 512.0f;

  // p = 2^(score - max); per query the lane's largest weight and the sum of p. Whether one is too large.
  KV_DEVICE bool exponentials(const std::byte* tile, const Scores& s, Scores& p, float (&largest)[kSlots],
                              float (&total)[kSlots]) const {
    bool too_large = false;
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      largest[slot] = total[slot] = 0.0f;
      const float less = (K::kScaling == Scaling::kChannel ? q_zero[slot] : 0.0f) - max[slot];
      for (int i = 0; i < kOwnRows; ++i) {
        const float one = p[i][slot] = simt::exp2(simt::fma(s[i][slot], q_unit[slot], less));
        total[slot] += one;
        largest[slot] = simt::larger(largest[slot], one * largest_scale(tile, row(i)));
      }
      // Scales count as no less than 2^-100, lest the sum of p be infinite.
      if (V::kScaling != Scaling::kNone) largest[slot] = simt::larger(largest[slot], total[slot] * 0x1p-100f);
      too_large |= largest[slot] > kMostWeight;
    }
    return too_large;
  }

  // Raises the maximum of queries with too large a weight. Weights include a row's scales of V and should be near 1 for tensor
  // cores, so a row's score includes the rounded logarithm of its largest scale.
  KV_DEVICE void raise_max(const std::byte* tile, const Scores& s, const float (&largest_weight)[kSlots]) {
    float factor[kSlots];
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      float higher = max[slot];
      for (int i = 0; i < kOwnRows; ++i) {
        const float bias = V::kScaling == Scaling::kNone ? 0.0f : rounded_log2(largest_scale(tile, row(i)));
        higher = simt::larger(higher, score(slot, s[i][slot]) + bias);
      }
      higher = largest_of_quad(higher);
      if (largest_of_quad(largest_weight[slot]) <= kMostWeight) higher = max[slot];
      factor[slot] = simt::exp2(max[slot] - higher);
      max[slot] = higher;
      sum[slot] *= factor[slot];
      zero[slot] *= factor[slot];
    }
    for (auto& channels : values) {
      for (int i = 0; i < 4; ++i) channels[i] *= factor[i / 2 % kSlots];
    }
  }

  // values += p * V, with p times the rows' scales.
  KV_DEVICE void add_values(const std::byte* tile, const Scores& p) {
    Weights weights[kRowTiles / 2];
    KV_UNROLL
    for (int first = 0; first < Values::kChunks; first += kChunksAtOnce) {
      uint32_t word[4];
      load_chunk<Shape::kRows, Shape::kVBytes, true>(tile + Shape::kVAt, first, word);
      for (int chunk = first; chunk < first + kChunksAtOnce; ++chunk) {
        for (int n = 0; n < kRowTiles; n += 2) {
          if (chunk % Values::kBlockChunks == 0) {
            weights[n / 2] = scaled_weights(tile, n, chunk / Values::kBlockChunks, p);
          }
          const uint32_t* rows = word + (chunk - first) * kRowTiles + n;
          KV_UNROLL
          for (int pair = 0; pair < Values::kPairs; ++pair) {
            weights[n / 2].multiply({V::pair(rows[0], pair, false), V::pair(rows[1], pair, false)},
                                    values[chunk * Values::kPairs + pair]);
          }
        }
      }
    }
  }

  // The weights of rows [8n, 8n + 16) times a block's scales.
  KV_DEVICE Weights scaled_weights(const std::byte* tile, int n, int block, const Scores& p) const {
    float w[kSlots][4];
    for (int i = 0; i < 4; ++i) {
      const float scale = v_scale(tile, row(2 * n + i), block).scale;
      for (int slot = 0; slot < kSlots; ++slot) w[slot][i] = p[2 * n + i][slot] * scale;
    }
    Weights weights;
    weights.set(w, 0);
    return weights;
  }

  // Adds a tile that begins with row `first`.
  KV_DEVICE void add_tile(std::byte* tile, int first, const BlockTask& task) {
    if constexpr (kScalesQueries) scale_queries(tile + Shape::kUnitMetaAt);
    Scores s;
    scores(tile, s);
    if (first + Shape::kRows > seen_by_all) {
      mask_or_keep(task, first, s);
      if (kShare == WarpsShare::kQueries) clear_scales(tile, task.end - first);
    }
    Scores weights;
    weigh(tile, s, weights);
    add_values(tile, weights);
  }

  // Sets the scores of rows that a query does not see to -inf and keeps the others if they are asked for. Padding queries are
  // unmasked; their results are discarded.
  KV_DEVICE void mask_or_keep(const BlockTask& task, int first, Scores& s) const {
    for (int slot = 0; slot < kSlots; ++slot) {
      const int query = slot * 8 + g, seen = task.seen(query);
      const bool keeps = task.problem.logits && query < task.queries;
      for (int i = 0; i < kOwnRows; ++i) {
        if (first + row(i) >= seen) {
          s[i][slot] = -INFINITY;
        } else if (keeps) {
          task.logits(query)[first + row(i)] = score(slot, s[i][slot]);
        }
      }
    }
  }

  // Clears the scales of V of copied rows that do not count: a weight of 0 times NaN would be NaN.
  KV_DEVICE static void clear_scales(std::byte* tile, int rows) {
    if constexpr (K::kScaling == Scaling::kChannel) {
      auto* scales = reinterpret_cast<float*>(tile + Shape::kVMetaAt + simt::lane() * Shape::kVMeta);
      for (int i = 0; i < Shape::kVMeta / 4; ++i) {
        if (simt::lane() >= rows && simt::lane() < Shape::kRows) scales[i] = 0.0f;
      }
      simt::sync_warp();  // lanes read other lanes' scales
    }
  }

  using Results = BlockResults<kHeadDim, kDecodeWarps, kQueries>;

  KV_DEVICE void put(const Results& results) const {
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      float* to = results.at(simt::warp(), slot * 8 + g);
      const float all_zero = sum_of_quad(zero[slot]), all_sum = sum_of_quad(sum[slot]);
      KV_UNROLL
      for (int i = 0; i < kHeadDim / 8; ++i) {
        for (int b = 0; b < 2; ++b) {
          to[Values::value_element(2 * t + b, i)] = product<kQueries>(values[i], slot, b) + all_zero;
        }
      }
      if (t != 0) continue;
      to[kHeadDim] = max[slot];
      to[kHeadDim + 1] = all_sum;
    }
  }
};

}  // namespace kv::cuda
