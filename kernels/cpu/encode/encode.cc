// Chooses the encoder and decoder: the formats' own scalar code, or the vector units.
#include "kernels/encode.h"

#include <algorithm>

#include "kernels/cpu/encode/convert.h"
#include "kernels/cpu/encode/decode_levels.h"
#include "kernels/cpu/encode/encode_simd.h"
#include "kernels/cpu/isa.h"
#include "kernels/format/list.h"

namespace kv {
namespace {

// Scalar code spends most of its time in f16 to f32. Formats with many f16 numbers are therefore decoded
// here, like their own decoders but for that conversion.
void decode_f16(const Encoding&, int head_dim, const std::byte* data, const std::byte*, int, int,
                float* out) {
  cpu::convert_f16_to_f32(data, out, head_dim);
}

void decode_half_meta(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta,
                      int first, int count, float* out) {
  ChannelGrids grids;
  cpu::convert_f16_to_f32(meta, grids.scale, head_dim);
  cpu::convert_f16_to_f32(meta + 2 * head_dim, grids.zero, head_dim);
  ChannelFormat::decode_on(grids, e, head_dim, data, first, count, out);
}

void decode_level_row(const Encoding& e, int head_dim, const std::byte* data, const std::byte* meta, int, int,
                      float* out) {
  cpu::decode_level_rows(e, head_dim, &data, &meta, 1, out);
}

// FormatDescriptor::decode, or what is faster.
auto decoder_of(const Encoding& e) {
  if (e.format == F16Format::kFormat) return decode_f16;
  if (e.format == ChannelFormat::kFormat && half_meta(e.bits)) return decode_half_meta;
  const FormatDescriptor& format = descriptor_of(e.format);
  if (format.elements == Elements::kLevels && !cpu::isa_is_scalar()) return decode_level_row;
  return format.decode;
}

}  // namespace

void encode_units(const Encoding& encoding, int head_dim, std::span<const UnitJob> jobs) {
  const FormatDescriptor& format = descriptor_of(encoding.format);
  if (!cpu::isa_is_scalar()) return cpu::encode_units_simd(encoding, head_dim, jobs);
  for (const UnitJob& job : jobs) format.encode(encoding, head_dim, job.rows, job.data, job.meta);
}

void encode_unit(const Encoding& encoding, int head_dim, const float* rows, std::byte* data,
                 std::byte* meta) {
  const UnitJob job{rows, data, meta};
  encode_units(encoding, head_dim, {&job, 1});
}

void decode_row(const Encoding& encoding, int head_dim, const std::byte* data, const std::byte* meta, int row,
                float* out) {
  decoder_of(encoding)(encoding, head_dim, data, meta, row, 1, out);
}

void decode_rows(const Side& side, int head_dim, int64_t first, int64_t count, float* out) {
  const auto decode = decoder_of(side.encoding);
  const int group = side.encoding.group;
  const int64_t end = first + count;
  for (int64_t row = first; row < end;) {
    const int64_t unit = row / group;
    const int64_t here = std::min(end, (unit + 1) * group) - row;
    const std::byte* data = side.data + unit * side.stride;
    const std::byte* meta = side.meta ? side.meta + unit * side.meta_stride : nullptr;
    decode(side.encoding, head_dim, data, meta, static_cast<int>(row % group), static_cast<int>(here), out);
    row += here;
    out += here * head_dim;
  }
}

}  // namespace kv
