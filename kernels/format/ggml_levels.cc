#include "kernels/format/ggml_levels.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace kv {
namespace {

using Codes = std::array<unsigned, kGgmlBlock>;

uint16_t as_half(float x) { return f32_to_f16(clamp_number(x, -kLargestHalf, kLargestHalf)); }

// Halves are rounded up.
unsigned nearest_up(float x, int top) {
  return static_cast<unsigned>(static_cast<int32_t>(clamp_number(x + 0.5f, 0.0f, static_cast<float>(top))));
}

// From the smallest element to the largest.
Codes between_ends(int top, const float* x, std::byte* meta) {
  float low = x[0], high = x[0];
  for (int i = 1; i < kGgmlBlock; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const bool finite = largest_magnitude_bits(kGgmlBlock, x) < kInfinityBits;
  const BlockScale scale = block_scale((high - low) / static_cast<float>(top), finite);
  store(meta, 0, scale.stored);
  store(meta, 1, as_half(low));
  Codes codes;
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = nearest_up((x[i] - low) * scale.inverse, top);
  return codes;
}

// Around the code `middle`: the element of the largest magnitude gets the code farthest from it, and those of the other sign are
// cut off at the code at the other end.
Codes around_zero(int top, int middle, const float* x, std::byte* meta) {
  const float first = first_of(largest_magnitude_bits(kGgmlBlock, x), x), zero = static_cast<float>(middle);
  const float farthest = static_cast<float>((2 * middle > top ? 0 : top) - middle);
  const BlockScale scale = block_scale((first + 0.0f) / farthest, magnitude_bits(first) < kInfinityBits);
  store(meta, 0, scale.stored);
  Codes codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    const float code = clamp_number(x[i] * scale.inverse + (zero + 0.5f), 0.0f, static_cast<float>(top));
    codes[i] = static_cast<unsigned>(static_cast<int32_t>(code));
  }
  return codes;
}

// A tie goes to the upper level.
unsigned nearest_level(float x) {
  unsigned code = 0;
  while (code + 1 < kIq4Levels.size() &&
         x - static_cast<float>(kIq4Levels[code]) >= static_cast<float>(kIq4Levels[code + 1]) - x)
    ++code;
  return code;
}

// Codes of the scale that brings the largest magnitude to the first level; stored is the scale that fits these codes best, an
// element's error weighted with its square.
Codes on_levels(const float* x, std::byte* meta) {
  constexpr float kSmallest = 1e-15f;  // blocks below it are zeros
  const uint32_t largest = largest_magnitude_bits(kGgmlBlock, x);
  const float first = first_of(largest, x);
  const bool finite = largest < kInfinityBits, zeros = finite && std::abs(first) < kSmallest;
  float scale = zeros ? 0.0f : first / static_cast<float>(kIq4Levels[0]);
  const float inverse = zeros ? 0.0f : 1.0f / scale;
  float products = 0.0f, squares = 0.0f;
  Codes codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = nearest_level(x[i] * inverse);
    const float level = static_cast<float>(kIq4Levels[codes[i]]), weighted = x[i] * x[i] * level;
    products += weighted * x[i];
    squares += weighted * level;
  }
  const float best = products / squares;
  if (!zeros && std::isfinite(best)) scale = best;  // else the sums are beyond f32
  store(meta, 0, block_scale(scale, finite).stored);
  return codes;
}

// Upper bits are those above the nibble.
template <size_t kIndex>
void store_codes(const Codes& codes, std::byte* data) {
  constexpr LevelBlocks kOf = kLevelBlocks[kIndex];
  std::byte *nibbles = data + kOf.nibbles_at, *high = data + kOf.high_at();
  std::fill_n(high, kOf.block_bytes() - kHalfBlock, std::byte{0});
  for (int j = 0; j < kHalfBlock; ++j) {
    const unsigned a = codes[static_cast<size_t>(j)], b = codes[static_cast<size_t>(j + kHalfBlock)];
    nibbles[j] = static_cast<std::byte>((a & 15u) | (b & 15u) << 4);
    if (kOf.bits == 5) high[j / 8] |= static_cast<std::byte>(a >> 4 << j % 8);
    if (kOf.bits == 5) high[2 + j / 8] |= static_cast<std::byte>(b >> 4 << j % 8);
    if (kOf.bits == 6) high[j % 8] |= static_cast<std::byte>((a >> 4 | b >> 4 << 2) << 4 * (j / 8));
  }
}

template <size_t kIndex>
int load_code(const std::byte* data, int i) {
  constexpr LevelBlocks kOf = kLevelBlocks[kIndex];
  const int j = i % kHalfBlock, upper = i / kHalfBlock;
  const std::byte* high = data + kOf.high_at();
  const int nibble = static_cast<int>(data[kOf.nibbles_at + j]) >> 4 * upper & 15;
  if (kOf.bits == 5) return nibble | (static_cast<int>(high[i / 8]) >> i % 8 & 1) << 4;
  if (kOf.bits == 6) return nibble | (static_cast<int>(high[j % 8]) >> (4 * (j / 8) + 2 * upper) & 3) << 4;
  return nibble;
}

// Calls call(index) with a format's index in kLevelBlocks as a constant, so that its loops are compiled for it.
template <class Call>
void with_index(size_t index, const Call& call) {
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    static_cast<void>(((kIndex == index && (call(std::integral_constant<size_t, kIndex>()), true)) || ...));
  }
  (std::make_index_sequence<std::size(kLevelBlocks)>());
}

}  // namespace

void encode_level_blocks(size_t index, int head_dim, const float* row, std::byte* data, std::byte* meta) {
  with_index(index, [&](auto constant) {
    constexpr LevelBlocks kOf = kLevelBlocks[constant];
    for (int b = 0; b < head_dim / kGgmlBlock;
         ++b, row += kGgmlBlock, data += kOf.block_bytes(), meta += kOf.meta_bytes()) {
      const Codes codes = kOf.has_table ? on_levels(row, meta)
                          : kOf.has_min ? between_ends(kOf.top(), row, meta)
                                        : around_zero(kOf.top(), kOf.middle, row, meta);
      store_codes<constant>(codes, data);
    }
  });
}

void decode_level_blocks(size_t index, int head_dim, const std::byte* data, const std::byte* meta,
                         float* row) {
  with_index(index, [&](auto constant) {
    constexpr LevelBlocks kOf = kLevelBlocks[constant];
    for (int b = 0; b < head_dim / kGgmlBlock;
         ++b, row += kGgmlBlock, data += kOf.block_bytes(), meta += kOf.meta_bytes()) {
      const float d = f16_to_f32(load<uint16_t>(meta, 0));
      for (int i = 0; i < kGgmlBlock; ++i) {
        row[i] = static_cast<float>(kOf.level(load_code<constant>(data, i))) * d;
        if (kOf.has_min) row[i] += f16_to_f32(load<uint16_t>(meta, 1));
      }
    }
  });
}

}  // namespace kv
