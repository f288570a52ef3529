#include "kernels/format/encoding.h"

#include <algorithm>

#include "kernels/cpu/encode/encode_simd.h"
#include "kernels/cpu/isa.h"
#include "kernels/format/descriptor.h"

namespace kv {

std::string unsupported_reason(const Encoding& encoding, int head_dim) {
  return descriptor_of(encoding.format).unsupported_reason(encoding, head_dim);
}

int64_t unit_data_bytes(const Encoding& encoding, int head_dim) {
  return descriptor_of(encoding.format).data_bytes(encoding, head_dim);
}

int64_t unit_meta_bytes(const Encoding& encoding, int head_dim) {
  return descriptor_of(encoding.format).meta_bytes(encoding, head_dim);
}

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
  descriptor_of(encoding.format).decode(encoding, head_dim, data, meta, row, 1, out);
}

void decode_rows(const Side& side, int head_dim, int64_t first, int64_t count, float* out) {
  const FormatDescriptor& format = descriptor_of(side.encoding.format);
  const int group = side.encoding.group;
  const int64_t end = first + count;
  for (int64_t row = first; row < end;) {
    const int64_t unit = row / group;
    const int64_t here = std::min(end, (unit + 1) * group) - row;
    const std::byte* data = side.data + unit * side.stride;
    const std::byte* meta = side.meta ? side.meta + unit * side.meta_stride : nullptr;
    format.decode(side.encoding, head_dim, data, meta, static_cast<int>(row % group), static_cast<int>(here),
                  out);
    row += here;
    out += here * head_dim;
  }
}

std::string encoding_name(const Encoding& encoding) { return descriptor_of(encoding.format).name(encoding); }

std::string encodings_name(const Encoding& k, const Encoding& v) {
  return k == v ? encoding_name(k) : "k:" + encoding_name(k) + ",v:" + encoding_name(v);
}

}  // namespace kv
