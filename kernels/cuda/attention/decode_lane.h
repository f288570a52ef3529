// What a lane of decode.h's warps computes, over rows of any format but f32.
#pragma once

#include "kernels/cuda/attention/decode_f32.h"
#include "kernels/cuda/attention/mma_fragment.h"
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
  static constexpr bool kSharesQueries = kHeadDim > 128 && K::kScaling != Scaling::kChannel;
  static constexpr int kQueryBytes = kSharesQueries ? kChunks * simt::kWarp * int{sizeof(Query)} : 0;
  // Of each of 8 rows, for rows 2t and 2t + 1.
  using Scores = float[kRowTiles][kSlots][2];

  int g, t;
  int seen[kSlots];
  Query q[kSharesQueries ? 1 : kChunks];  // of 16 elements each
  Query* shared_q;                        // [kChunks, lanes]
  float q_unit[kSlots];                   // what products with q are to be multiplied with
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
      const int query = slot * 8 + g;
      seen[slot] = query < task.queries ? task.seen(query) : 0;
      max[slot] = kNoScore;
      sum[slot] = zero[slot] = 0.0f;
    }
    KV_UNROLL
    for (auto& tile : values) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
    if constexpr (K::kScaling != Scaling::kChannel) set_queries(task, nullptr);
  }

  // The queries as operands, times the channels' scales where K has them.
  KV_DEVICE void set_queries(const BlockTask& task, const std::byte* channels) {
    float x[kSlots][kHeadDim / 4];
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      const int query = slot * 8 + g;
      const float* from = task.q + query * kHeadDim;
      float largest = 0.0f, total = 0.0f;
      KV_UNROLL
      for (int i = 0; i < kHeadDim / 4; ++i) {
        const int d = Keys::key_element(t, i / 2, i % 2);
        float number = query < task.queries ? from[d] * score_scale(kHeadDim) : 0.0f;
        if constexpr (K::kScaling == Scaling::kChannel) {
          const ScaleZero channel = K::scale(channels, kHeadDim, d);
          total = simt::fma(number, channel.zero, total);
          number *= channel.scale;
        } else {
          total += number;
        }
        x[slot][i] = number;
        largest = simt::larger(largest, number < 0.0f ? -number : number);
      }
      q_zero[slot] = sum_of_quad(total);
      const float to_one = power_to_one(largest_of_quad(largest));
      q_unit[slot] = 1.0f / to_one;  // exact
      KV_UNROLL
      for (float& number : x[slot]) number *= to_one;
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

  KV_DEVICE const Query& query(int chunk) const {
    return kSharesQueries ? shared_q[chunk * simt::kWarp + simt::lane()] : q[kSharesQueries ? 0 : chunk];
  }

  // c += q * K for the block's elements of rows [first, first + 8).
  KV_DEVICE void multiply_keys(const std::byte* tile, int first, int block, float (&c)[4]) const {
    constexpr int kAtOnce = Keys::kKeyWords < 4 ? Keys::kKeyWords : 4;
    KV_UNROLL
    for (int own = 0; own < Keys::kKeyWords; own += kAtOnce) {
      uint32_t word[kAtOnce];
      read_words<Shape::kKBytes>(tile, first + g, block * Keys::kWords + t * Keys::kKeyWords + own, word);
      KV_UNROLL
      for (int pair = 0; pair < kAtOnce * Keys::kPairs; pair += 2) {
        const uint32_t b[2] = {K::pair(word[pair / Keys::kPairs], pair % Keys::kPairs),
                               K::pair(word[(pair + 1) / Keys::kPairs], (pair + 1) % Keys::kPairs)};
        query((block * Keys::kBlockPairs + own * Keys::kPairs + pair) / 2).multiply(b, c);
      }
    }
  }

  KV_DEVICE static ScaleZero k_scale(const std::byte* tile, int row, int block) {
    return K::scale(tile + Shape::kKMetaAt + row * Shape::kKMeta, block);
  }
  KV_DEVICE static ScaleZero v_scale(const std::byte* tile, int row, int block) {
    if constexpr (Shape::kVMeta == 0)
      return {1.0f, 0.0f};
    else
      return V::scale(tile + Shape::kVMetaAt + row * Shape::kVMeta, block);
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
      const float scale = v_scale(tile, row, block).scale;
      largest = simt::larger(largest, scale < 0.0f ? -scale : scale);
    }
    return rounded_log2(largest);
  }

  // Scores to weights, still without the scales of V.
  KV_DEVICE void weigh(const std::byte* tile, Scores& s) {
    float higher[kSlots];
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) higher[slot] = max[slot];
    KV_UNROLL
    for (int n = 0; n < kRowTiles; ++n) {
      KV_UNROLL
      for (int b = 0; b < 2; ++b) {
        const float bias = exponent_bias(tile, 8 * n + 2 * t + b);
        KV_UNROLL
        for (int slot = 0; slot < kSlots; ++slot) {
          higher[slot] = simt::larger(higher[slot], s[n][slot][b] + bias);
        }
      }
    }
    rescale(higher);
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

  // To the largest score of any lane.
  KV_DEVICE void rescale(const float (&higher)[kSlots]) {
    float factor[kSlots];
    KV_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      const float largest = largest_of_quad(higher[slot]);
      factor[slot] = simt::exp2(max[slot] - largest);
      max[slot] = largest;
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
    constexpr int kOwn = Values::kValueHalves / 2, kMost = kHeadDim > 128 ? 2 : 4;  // few registers are left
    constexpr int kAtOnce = kOwn < kMost ? kOwn : kMost;
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
    if constexpr (K::kScaling == Scaling::kChannel) set_queries(task, tile + Shape::kUnitMetaAt);
    Scores s;
    KV_UNROLL
    for (int n = 0; n < kRowTiles; ++n) {
      scores(tile, 8 * n, s[n]);
      KV_UNROLL
      for (int slot = 0; slot < kSlots; ++slot) {
        KV_UNROLL
        for (int b = 0; b < 2; ++b) mask_or_keep(task, slot, first + 8 * n + 2 * t + b, s[n][slot][b]);
      }
    }
    weigh(tile, s);
    KV_UNROLL
    for (int row = 0; row < Shape::kRows; row += 16) add_values(tile, row, s);
  }

  // -inf for what the query does not see; the others' scores may be asked for.
  KV_DEVICE void mask_or_keep(const BlockTask& task, int slot, int row, float& s) const {
    if (row >= seen[slot]) {
      s = -INFINITY;
    } else if (task.logits) {
      task.logits[(slot * 8 + g) * task.all_rows + row] = s;
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
