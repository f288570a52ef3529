// kVq: additive vector quantisation (residual codebooks, as in Chen, Guan and Wang 2010; for KV caches CommVQ, Li et al. 2025,
// arXiv:2506.18879). Every 8 values of a row are the sum of `bits` words, one of each codebook of 256: `bits` bits a value.
//
//   data  `bits` x D/8 indices of 8 bits, codebook after codebook    meta  nothing is stored
//
// Codebooks: [codebooks, D/8, 256, 8] f32, one for each 8 values of the row. The first codebook stands for the values, each
// later one for what those before it leave. With Encoding::second they are learned, and Side::meta, or UnitJob::meta, points
// to those of the layer, head and side, with a stride of 0; `bits` may be fewer than there are. Otherwise, and where that
// pointer is null, every 8 values have the same, which are made for N(0,1): all signs of the best magnitude.
//
// The nearest word is chosen, codebook by codebook, the lower of two that are as near; values of 1e18 and more may get
// another, since their squares overflow. Word 255 is NaN in every codebook, and stands for 8 values that are not all finite, so
// that the damage shows.
#pragma once

#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"
#include "kernels/math.h"

namespace kv {

inline constexpr int kVqValues = 8;     // that an index stands for
inline constexpr int kVqWords = 256;    // of a codebook
inline constexpr int kVqNanWord = 255;  // of all of them
inline constexpr int kVqMostBits = 2;
inline constexpr int kVqBookFloats = kVqWords * kVqValues;

// The index of the word nearest to x [8], of the first kVqNanWord words [kVqWords, 8].
int nearest_word(const float* words, const float* x);

// Floats of the codebooks of one head's rows, [codebooks, head_dim / 8, 256, 8].
constexpr int64_t vq_table_floats(int codebooks, int head_dim) {
  return int64_t{codebooks} * head_dim / kVqValues * kVqBookFloats;
}

struct VqFormat {
  static constexpr Format kFormat = Format::kVq;
  static constexpr Elements kElements = Elements::kLevels;
  static constexpr Scaling kScaling = Scaling::kNone;
  static constexpr int kBits = 0;
  static constexpr double kAttentionError = kFloatAttentionError;
  static constexpr int64_t data_bytes(const Encoding& e, int head_dim) {
    return int64_t{e.bits} * head_dim / kVqValues;
  }
  static constexpr int64_t meta_bytes(const Encoding&, int) { return 0; }
  static constexpr bool fills_words(const Encoding&, int) { return false; }
  static std::string name(const Encoding& e) {
    return "vq" + std::to_string(e.bits) + (e.second ? "learned" : "");
  }
  static std::string unsupported_reason(const Encoding&, int) { return ""; }
  // None: tests and benchmarks of all formats expect scales. tests/kernels/format/vq_test.cc tests this one.
  static std::vector<Encoding> samples() { return {}; }
  static void encode(const Encoding& e, int head_dim, const float* rows, std::byte* data, std::byte* meta);
  static void decode(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta, int first,
                     int count, float* out);
};

}  // namespace kv
