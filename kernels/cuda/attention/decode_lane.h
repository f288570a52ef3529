// What a lane of decode.h's warps computes, over rows of any format but f32.
#pragma once

#include "kernels/cuda/attention/decode_f32.h"
#include "kernels/cuda/attention/lane_channels.h"
#include "kernels/cuda/attention/operand.h"

namespace kv::cuda {

// What a lane knows: kSlots queries (g and, of 16, g + 8), and of their softmax its own part.
template <class K, class V, int kHeadDim, int kQueries>
struct DecodeLane {
  using Shape = TileShape<K, V, kHeadDim>;
  using Keys = MmaFragment<K, kHeadDim>;
  using Values = MmaFragment<V, kHeadDim>;
  using Query = SplitOperand<typename K::Number, kQueries, K::Number::kQueryParts>;
  using Weights = SplitOperand<typename V::Number, kQueries, 2>;
  static constexpr int kSlots = kQueries / 8;
  static constexpr int kRowTiles = Shape::kRows / 8;
  static constexpr int kChunks = kHeadDim / 16;
  // Where registers are too few for the queries, a block's warps have them together in shared memory.
  // And where each tile has scales for them, to be scaled into the lane's own.
  static constexpr bool kScalesQueries = K::kScaling == Scaling::kChannel;
  static constexpr bool kSharesQueries = kHeadDim > 128 || kScalesQueries;
  static constexpr bool kOwnsQueries = kScalesQueries || !kSharesQueries;
  static constexpr int kQueryBytes = kSharesQueries ? kChunks * simt::kWarp * int{sizeof(Query)} : 0;
  // That are read at once: where there is much else, few registers are left.
  static constexpr int kMostWords = 4 / (kHeadDim > 128 ? 2 : 1) / (kScalesQueries ? 2 : 1);
  // Of each of 8 rows, for rows 2t and 2t + 1.
  using Scores = float[kRowTiles][kSlots][2];

  int g, t;
  int seen_by_all;                      // rows that need no mask; none where scores are kept
  Query q[kOwnsQueries ? kChunks : 1];  // of 16 elements each
  Query* shared_q;                      // [kChunks, lanes]
  float q_unit[kSlots];                 // what products with q are to be multiplied with
  float unscaled_unit[kSlots];          // and with shared_q
  float q_zero[kSlots];  // the sum of q (kRow), or of q and the channels' zero points (kChannel)
  float max[kSlots], sum[kSlots], zero[kSlots];
  float values[kHeadDim / 8][4];

  // `shared`: kQueryBytes of the block's shared memory.
  KV_DEVICE void start(const BlockTask& task, std::byte* shared) {
    shared_q = reinterpret_cast<Query*>(shared);
    g = simt::lane() / 4;
    t = simt::lane() % 4;
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      max[slot] = kNoScore;
      sum[slot] = zero[slot] = 0.0f;
    }
    seen_by_all = task.problem.logits ? 0 : task.seen_by_all();
    KV_UNROLL
    for (auto& tile : values) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
    set_queries(task);
  }

  // The queries as operands, so that the largest element of each is between 1 and 2; or far above the least of 16
  // bits, for the lower parts of what is divided since the bits of K's codes lie higher.
  KV_DEVICE void set_queries(const BlockTask& task) {
    // (Times the largest scale, power_to_256() of lane_channels.h, that stays below 65504.)
    constexpr float kLargest = kScalesQueries ? 32.0f : K::kKeyUnit > 1.0f ? 256.0f : 1.0f;
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
      q_zero[slot] = sum_of_quad(total);
      const float to_largest = power_to_one(largest_of_quad(largest)) * kLargest;
      unscaled_unit[slot] = one_over_power(to_largest);
      q_unit[slot] = unscaled_unit[slot] * K::kKeyUnit;
      KV_UNROLL
      for (int i = 0; i < kHeadDim / 4; ++i) {
        x[slot][i] *= to_largest * (kScalesQueries ? 1.0f : unshift<K>(i / 2 % Keys::kPairs));
      }
    }
    KV_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if constexpr (!kSharesQueries) {
        q[chunk].set(x, 4 * chunk);
      } else if (chunk % kDecodeWarps == simt::warp()) {
        shared_q[chunk * simt::kWarp + simt::lane()].set(x, 4 * chunk);
      }
    }
    if constexpr (kSharesQueries) simt::sync_block();
  }

  // Where channels have scales, these go to the queries, anew for each tile, since a tile lies in one group. And the
  // queries times the zero points are a matrix product, too.
  KV_DEVICE void scale_queries(const std::byte* scales) {
    const Query* unscaled = shared_q + simt::lane();
    LaneChannels<K, kHeadDim> channels;
    channels.read(t, scales + 2 * kHeadDim);  // the zero points
    float c[4] = {};
    KV_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      unscaled[chunk * simt::kWarp].multiply({channels.pair(2 * chunk), channels.pair(2 * chunk + 1)}, c);
    }
    const float factor = power_to_256<kHeadDim>(scales);
    channels.read(t, scales);
    channels.multiply(factor);
    KV_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      q[chunk] =
          unscaled[chunk * simt::kWarp].times({channels.pair(2 * chunk), channels.pair(2 * chunk + 1)});
    }
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      q_zero[slot] = product<kQueries>(c, slot, 0) * unscaled_unit[slot];
      q_unit[slot] = unscaled_unit[slot] * K::kKeyUnit * one_over_power(factor);
    }
  }

  KV_DEVICE const Query& query(int chunk) const {
    return kOwnsQueries ? q[kOwnsQueries ? chunk : 0] : shared_q[chunk * simt::kWarp + simt::lane()];
  }

  // c += q * K for the block's elements of rows [first, first + 8).
  KV_DEVICE void multiply_keys(const std::byte* tile, int first, int block, float (&c)[4]) const {
    constexpr int kAtOnce = Keys::kKeyWords < kMostWords ? Keys::kKeyWords : kMostWords;
    KV_UNROLL
    for (int own = 0; own < Keys::kKeyWords; own += kAtOnce) {
      uint32_t word[kAtOnce];
      read_words<Shape::kKBytes>(tile, first + g, block * Keys::kWords + t * Keys::kKeyWords + own, word);
      KV_UNROLL
      for (int pair = 0; pair < kAtOnce * Keys::kPairs; pair += 2) {
        const uint32_t b[2] = {K::key_pair(word[pair / Keys::kPairs], pair % Keys::kPairs),
                               K::key_pair(word[(pair + 1) / Keys::kPairs], (pair + 1) % Keys::kPairs)};
        query((block * Keys::kBlockPairs + own * Keys::kPairs + pair) / 2).multiply(b, c);
      }
    }
  }

  KV_DEVICE static ScaleZero k_scale(const std::byte* tile, int row, int block) {
    return K::template scale<true>(tile + Shape::kKMetaAt + row * Shape::kKMeta, block);
  }
  KV_DEVICE static ScaleZero v_scale(const std::byte* tile, int row, int block) {
    if constexpr (Shape::kVMeta == 0)
      return {1.0f, 0.0f};
    else
      return V::template scale<false>(tile + Shape::kVMetaAt + row * Shape::kVMeta, block);
  }

  // The scores of rows [first, first + 8).
  KV_DEVICE void scores(const std::byte* tile, int first, float (&s)[kSlots][2]) const {
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) s[slot][0] = s[slot][1] = 0.0f;
    KV_UNROLL
    for (int block = 0; block < Keys::kBlocks; ++block) {
      float c[4] = {};
      multiply_keys(tile, first, block, c);
      KV_UNROLL
      for (int b = 0; b < 2; ++b) {
        ScaleZero meta{1.0f, 0.0f};
        if constexpr (Shape::kKMeta > 0) meta = k_scale(tile, first + 2 * t + b, block);
        KV_UNROLL
        for (int slot = 0; slot < kSlots; ++slot) {
          const float dot = product<kQueries>(c, slot, b) * q_unit[slot];
          s[slot][b] = simt::fma(dot, meta.scale, s[slot][b]);
          if constexpr (K::kScaling == Scaling::kRow) s[slot][b] += meta.zero * q_zero[slot];
          if constexpr (K::kScaling == Scaling::kChannel) s[slot][b] += q_zero[slot];
        }
      }
    }
  }

  // A row's scales of V are part of its weights, which tensor cores want near 1. So what counts as a row's score,
  // when the largest is looked for, has the logarithm of its largest scale in it, rounded.
  KV_DEVICE static float exponent_bias(const std::byte* tile, int row) {
    if constexpr (V::kScaling == Scaling::kNone) return 0.0f;
    float largest = 0.0f;
    KV_UNROLL
    for (int block = 0; block < Values::kBlocks; ++block) {
      largest = simt::larger(largest, std::fabs(v_scale(tile, row, block).scale));
    }
    return rounded_log2(largest);
  }

  // Scores to weights, still without the scales of V.
  KV_DEVICE void weigh(const std::byte* tile, Scores& s) {
    float largest[kSlots];
    KV_UNROLL
    for (float& one : largest) one = kNoScore;
    KV_UNROLL
    for (int n = 0; n < kRowTiles; ++n) {
      KV_UNROLL
      for (int b = 0; b < 2; ++b) {
        const float bias = exponent_bias(tile, 8 * n + 2 * t + b);
        KV_UNROLL
        for (int slot = 0; slot < kSlots; ++slot) {
          largest[slot] = simt::larger(largest[slot], s[n][slot][b] + bias);
        }
      }
    }
    bool much_larger = false;
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      largest[slot] = largest_of_quad(largest[slot]);
      much_larger |= largest[slot] > max[slot] + kLag;
    }
    if (much_larger) rescale(largest);
    KV_UNROLL
    for (int n = 0; n < kRowTiles; ++n) {
      KV_UNROLL
      for (int b = 0; b < 2; ++b) {
        const float row_zero = v_scale(tile, 8 * n + 2 * t + b, 0).zero;
        KV_UNROLL
        for (int slot = 0; slot < kSlots; ++slot) {
          const float p = simt::exp2(s[n][slot][b] - max[slot]);
          sum[slot] += p;
          if constexpr (V::kScaling == Scaling::kRow) zero[slot] = simt::fma(p, row_zero, zero[slot]);
          s[n][slot][b] = p;
        }
      }
    }
  }

  // `max` follows the largest score only when that is larger by 2^kLag: until then weights are so much larger than 1,
  // which 16 bits can hold, and nothing is multiplied. (FlashAttention-4 does so.)
  // But weights of bfloat16 have few bits, and the largest is exact only as 1.
  static constexpr float kLag = V::Number::kQueryParts > 2 ? 0.0f : 8.0f;
  KV_DEVICE void rescale(const float (&largest)[kSlots]) {
    float factor[kSlots];
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      const float higher = simt::larger(max[slot], largest[slot]);
      factor[slot] = simt::exp2(max[slot] - higher);
      max[slot] = higher;
      sum[slot] *= factor[slot];
      zero[slot] *= factor[slot];
    }
    KV_UNROLL
    for (auto& tile : values) {
      KV_UNROLL
      for (int i = 0; i < 4; ++i) tile[i] *= factor[i / 2 % kSlots];
    }
  }

  // Weights p of rows [first, first + 16) times their scales.
  KV_DEVICE void add_values(const std::byte* tile, int first, const Scores& p) {
    KV_UNROLL
    for (int block = 0; block < Values::kBlocks; ++block) {
      float w[kSlots][4];
      KV_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float scale = v_scale(tile, first + row_of_column(i), block).scale;
        KV_UNROLL
        for (int slot = 0; slot < kSlots; ++slot) w[slot][i] = p[first / 8 + i / 2][slot][i % 2] * scale;
      }
      Weights weights;
      weights.set(w, 0);
      if constexpr (Values::kValueHalves == 1) {
        multiply_half_words(tile, first, block, weights);
      } else {
        multiply_words(tile, first, block, weights);
      }
    }
  }

  // Of 16 rows, the lane's i-th: 2t, 2t + 1, 2t + 8, 2t + 9.
  KV_DEVICE int row_of_column(int i) const { return 2 * t + i % 2 + i / 2 * 8; }

  // values[i] += weights * V for what two words of 16-bit halves, each of two rows, have in them.
  KV_DEVICE void multiply_pairs(const uint32_t (&rows)[2], int i, const Weights& weights) {
    KV_UNROLL
    for (int pair = 0; pair < Values::kPairs; ++pair) {
      const uint32_t b[2] = {V::pair(rows[0], pair), V::pair(rows[1], pair)};
      weights.multiply(b, values[i + pair]);
    }
  }

  KV_DEVICE void multiply_half_words(const std::byte* tile, int first, int block, const Weights& weights) {
    uint32_t half[4];
    KV_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int at =
          tile_offset<Shape::kVBytes>(first + row_of_column(i), (block * Values::kWords * 2 + g) * 2);
      half[i] = simt::read<uint16_t>(tile + Shape::kVAt + at);
    }
    multiply_pairs({half[0] | half[1] << 16, half[2] | half[3] << 16}, block * Values::kBlockPairs, weights);
  }

  KV_DEVICE void multiply_words(const std::byte* tile, int first, int block, const Weights& weights) {
    constexpr int kOwn = Values::kValueHalves / 2, kAtOnce = kOwn < kMostWords ? kOwn : kMostWords;
    KV_UNROLL
    for (int own = 0; own < kOwn; own += kAtOnce) {
      uint32_t word[4][kAtOnce];
      KV_UNROLL
      for (int i = 0; i < 4; ++i) {
        read_words<Shape::kVBytes>(tile + Shape::kVAt, first + row_of_column(i),
                                   block * Values::kWords + g * kOwn + own, word[i]);
      }
      KV_UNROLL
      for (int half = 0; half < 2 * kAtOnce; ++half) {
        const uint32_t selector = half % 2 ? 0x7632u : 0x5410u;
        const auto halves = [&](int i) {
          return simt::permute_bytes(word[i][half / 2], word[i + 1][half / 2], selector);
        };
        multiply_pairs({halves(0), halves(2)},
                       block * Values::kBlockPairs + (2 * own + half) * Values::kPairs, weights);
      }
    }
  }

  // A tile whose first row is row `first`.
  KV_DEVICE void add_tile(const std::byte* tile, int first, const BlockTask& task) {
    if constexpr (kScalesQueries) scale_queries(tile + Shape::kUnitMetaAt);
    Scores s;
    KV_UNROLL
    for (int n = 0; n < kRowTiles; ++n) {
      scores(tile, 8 * n, s[n]);
    }
    if (first + Shape::kRows > seen_by_all) mask_or_keep(task, first, s);
    weigh(tile, s);
    KV_UNROLL
    for (int row = 0; row < Shape::kRows; row += 16) add_values(tile, row, s);
  }

  // -inf for what the query does not see; the others' scores may be asked for. Queries that are not there see what they
  // like.
  KV_DEVICE void mask_or_keep(const BlockTask& task, int first, Scores& s) const {
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      const int query = slot * 8 + g, seen = task.seen(query);
      const bool keeps = task.problem.logits && query < task.queries;
      KV_UNROLL
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        const int row = first + 8 * (i / 2) + 2 * t + i % 2;
        float& score = s[i / 2][slot][i % 2];
        if (row >= seen) {
          score = -INFINITY;
        } else if (keeps) {
          task.logits(query)[row] = score;
        }
      }
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
        KV_UNROLL
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
