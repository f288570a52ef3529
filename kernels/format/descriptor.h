// The properties of a storage format. Loops ask a descriptor; nothing else in the project switches on a
// Format.
//
// A format is a struct in a file of its own (f16.h, q8_0.h, token.h, …), and list.h lists them all. Loops that
// are compiled for a format ask the struct; code that meets a format at run time asks its FormatDescriptor.
// A struct has these static members:
//
//   kFormat                  its name in span.h
//   kElements, kScaling      see below
//   kBits                    of a stored element; 0: Encoding::bits says
//   kAttentionError          see FormatDescriptor
//   name … decode            the functions of FormatDescriptor
//   load_element             formats of a fixed width: element i of a row as f32, for the CPU and the GPU
//   element_of               integer codes: what code `code` of element i is, by the unit's metadata, for the GPU
//   store_element            formats without scales: an f32 number as stored
//   element                  which element of a row lies in slot `slot` of 32-bit word `word`, slots counted
//                            from the lowest bits up; not for f32, whose words are the elements
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/format/bytes.h"
#include "kernels/span.h"

namespace kv {

enum class Elements : uint8_t {
  kFloats,  // floating-point numbers: their error is relative to each element
  kCodes,   // integers: multiples of a step
  kLevels,  // numbers of a short table, whose rows are decoded first (cpu/encode/decode_levels.h)
};

// The elements that share one scale, or scale and zero point.
enum class Scaling : uint8_t {
  kNone,     // there are no scales
  kRow,      // a row: one token of one head
  kBlock,    // 16 or 32 consecutive elements of a row
  kChannel,  // one channel of a group of rows
};

// The most by which attention may differ from FP64 over the same stored rows, as a relative L2 distance.
// Sums in f32 leave about 1e-6 at any length.
inline constexpr double kFloatAttentionError = 1e-5;
// Codes meet queries and weights of 16 bits (kernels/cpu/attention/codes-inl.h). That leaves about 1e-5 where
// scores are of ordinary size, and up to 1e-3 where outlier channels make them so large that the format's own
// error is a hundred times that.
inline constexpr double kCodeAttentionError = 2e-3;
// Queries and weights of 8 bits (Arithmetic::kInt8), whose steps are up to 258 times as coarse.
inline constexpr double kInt8AttentionError = 0.2;

struct FormatDescriptor {
  Format format;
  Elements elements;
  Scaling scaling;
  int bits;
  double attention_error;  // that either of K and V may cause: see attention_error_bound()
  bool on_gpu;             // a GPU's kernels read and write it
  bool int8_levels;        // integers under a scale a block: attention multiplies them as q8_0's
  float middle_code;       // of codes under a scale and a minimum a block; 0: there is no minimum

  std::string (*name)(const Encoding&);
  // Empty, or why rows of this head_dim cannot be stored so.
  std::string (*unsupported_reason)(const Encoding&, int head_dim);
  // Bytes of a unit's codes, and of its scales and zero points.
  int64_t (*data_bytes)(const Encoding&, int head_dim);
  int64_t (*meta_bytes)(const Encoding&, int head_dim);
  // True if the codes of a row fill whole 128-bit words, so that attention multiplies them in place.
  bool (*fills_words)(const Encoding&, int head_dim);
  // An encoding of each width that has loops of its own: what tests and benchmarks of all formats go through.
  std::vector<Encoding> (*samples)();
  // Rows [encoding.group, head_dim] to one unit: the definition of the format's bytes.
  void (*encode)(const Encoding&, int head_dim, const float* rows, std::byte* data, std::byte* meta);
  // Rows [first, first + count) of one unit -> out [count, head_dim].
  void (*decode)(const Encoding&, int head_dim, const std::byte* data, const std::byte* meta, int first,
                 int count, float* out);
};

// Throws std::logic_error for a number that is no format's.
const FormatDescriptor& descriptor_of(Format format);

// Samples from all formats.
std::vector<Encoding> sample_encodings();

// Floats under a scale a row are FP8: their loops leave the scale out of the elements.
constexpr bool has_float_row_scale(Elements elements, Scaling scaling) {
  return elements == Elements::kFloats && scaling == Scaling::kRow;
}

// Empty, or why a row cannot be cut into such blocks.
inline std::string blocks_reason(const std::string& name, int block, int head_dim) {
  if (head_dim % block == 0) return "";
  const std::string elements = std::to_string(block);
  return name + " has blocks of " + elements + " elements, so head_dim must be a multiple of " + elements +
         ", not " + std::to_string(head_dim);
}

// Defaults that most formats share: one row a unit, elements of a fixed width, any head_dim.
template <Format kFormat_, int kBits_>
struct FixedWidthRows {
  static constexpr Format kFormat = kFormat_;
  static constexpr int kBits = kBits_;
  static std::string unsupported_reason(const Encoding&, int) { return ""; }
  static std::vector<Encoding> samples() { return {{.format = kFormat, .bits = kBits}}; }
  static constexpr int64_t data_bytes(const Encoding&, int head_dim) { return int64_t{head_dim} * kBits / 8; }
  static constexpr bool fills_words(const Encoding&, int) { return false; }
};

// The same of format F, under a scale for each block of `kElements_` elements.
template <class F, Format kFormat_, int kBits_, int kElements_>
struct BlockRows : FixedWidthRows<kFormat_, kBits_> {
  static constexpr Scaling kScaling = Scaling::kBlock;
  static std::string unsupported_reason(const Encoding& e, int head_dim) {
    return blocks_reason(F::name(e), kElements_, head_dim);
  }
};

// Floats without scales, `Stored` each, of format F.
template <class F, Format kFormat_, class Stored_>
struct PlainFloats : FixedWidthRows<kFormat_, 8 * int{sizeof(Stored_)}> {
  using Stored = Stored_;
  static constexpr Elements kElements = Elements::kFloats;
  static constexpr Scaling kScaling = Scaling::kNone;
  static constexpr double kAttentionError = kFloatAttentionError;
  static constexpr int64_t meta_bytes(const Encoding&, int) { return 0; }
  static void encode(const Encoding&, int head_dim, const float* rows, std::byte* data, std::byte*) {
    for (int i = 0; i < head_dim; ++i) store(data, i, F::store_element(rows[i]));
  }
  static void decode(const Encoding&, int head_dim, const std::byte* data, const std::byte*, int, int,
                     float* out) {
    for (int i = 0; i < head_dim; ++i) out[i] = F::load_element(data, nullptr, i);
  }
};

}  // namespace kv
