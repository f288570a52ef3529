// kTurbo: TurboQuant's codes of rows that a random rotation has made near-normal (Zandieh et al. 2025, arXiv:2504.19874;
// kernels/hadamard.h rotates). `bits` is 1 to 4, head_dim a multiple of 32.
//
//             data                             meta                                 element i
//   else      D codes of `bits`                f16 scale                            level * scale
//   second    the same, D signs of a sketch    f16 scale, f16 length / sqrt(D)      the same + what the sketch says
//   norm      the same as either, and the scale is the row's length divided by that of its levels
//
// The scale is the row's length / sqrt(D), so that levels are those of N(0,1) with the least mean square error (Lloyd
// 1957, Max 1960): bytes as vLLM's keys have them, an f16 norm beside the codes. A code is a level's magnitude, its sign in
// the highest bit. Codes of 2 and 4 bits are packed as bits.h has it; of 3 bits the magnitudes are, as codes of 2, and the
// signs follow, bit i % 8 of byte i / 8; 1 bit is the sign alone. The sketch's signs lie in the same way.
//
// `second` is QJL: of the error r that the codes leave, the signs z of S r and r's length. q r is then estimated without
// bias by sqrt(pi / 2) / D * |r| (S q) z, so that the element's part is sqrt(pi / 2) / D * |r| S^T z. The paper's S is
// normal; ours is sqrt(D) times the Hadamard matrix times random signs, of whose rows the dot product with r is nearly
// normal, too.
#pragma once

#include <array>

#include "kernels/format/bits.h"
#include "kernels/format/bytes.h"
#include "kernels/format/descriptor.h"
#include "kernels/math.h"

namespace kv {

// Magnitudes of the levels for N(0,1), by bits: 1, 2, 4 or 8 of them.
inline constexpr float kTurboLevels[4][8] = {{0.797884561f},
                                             {0.452780035f, 1.51041761f},
                                             {0.245094179f, 0.756005281f, 1.34390928f, 2.1519457f},
                                             {0.12839503f, 0.388048299f, 0.656759119f, 0.942340456f,
                                              1.2562312f, 1.61804639f, 2.06901723f, 2.73258957f}};

// sqrt(pi / 2).
inline constexpr float kSketchGain = 1.25331414f;

// Width of the codes that are packed by bits.h; 0 where there are none.
constexpr int turbo_packed_bits(int bits) { return bits == 1 ? 0 : bits == 3 ? 2 : bits; }
// True if signs lie apart from the codes.
constexpr bool turbo_has_signs(int bits) { return bits % 2 == 1; }

struct TurboFormat {
  static constexpr Format kFormat = Format::kTurbo;
  static constexpr Elements kElements = Elements::kLevels;
  static constexpr Scaling kScaling = Scaling::kRow;
  static constexpr int kBits = 0;
  static constexpr double kAttentionError = kFloatAttentionError;
  static constexpr int64_t data_bytes(const Encoding& e, int head_dim) {
    return packed_bytes(e.bits + e.second, head_dim);
  }
  static constexpr int64_t meta_bytes(const Encoding& e, int) { return e.second ? 4 : 2; }
  static constexpr bool fills_words(const Encoding&, int) { return false; }
  // The offsets of the signs, and of the sketch's, in the data.
  static constexpr int64_t signs_at(const Encoding& e, int head_dim) {
    return packed_bytes(turbo_packed_bits(e.bits), head_dim);
  }
  static constexpr int64_t sketch_at(const Encoding& e, int head_dim) {
    return packed_bytes(e.bits, head_dim);
  }
  static std::string name(const Encoding& e);
  static std::string unsupported_reason(const Encoding& e, int head_dim);
  static std::vector<Encoding> samples();
  static void encode(const Encoding& e, int head_dim, const float* rows, std::byte* data, std::byte* meta);
  static void decode(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta, int first,
                     int count, float* out);
};

}  // namespace kv
