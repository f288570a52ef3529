#include "kernels/encoding.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "kernels/bits.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/isa.h"
#include "kernels/formats.h"
#include "kernels/math.h"

namespace kv {
namespace {

[[noreturn]] void unknown(const Encoding& encoding) {
  throw std::logic_error("no encoder for format " + std::to_string(static_cast<int>(encoding.format)));
}

}  // namespace

std::string unsupported_reason(const Encoding& encoding, int head_dim) {
  const bool blocks = encoding.format == Format::kQ8_0 || encoding.format == Format::kQ4_0;
  if (blocks && head_dim % kGgmlBlock != 0) {
    return encoding_name(encoding) +
           " has blocks of 32 elements, so head_dim must be a multiple of 32, not " +
           std::to_string(head_dim);
  }
  if (encoding.format == Format::kToken && !encoding.affine && encoding.bits < 2) {
    return "a symmetric code needs 2 bits or more (one bit would hold nothing but 0); affine has 1 bit";
  }
  return "";
}

int64_t unit_data_bytes(const Encoding& encoding, int head_dim) {
  switch (encoding.format) {
    case Format::kF32:
      return 4 * int64_t{head_dim};
    case Format::kF16:
    case Format::kBf16:
      return 2 * int64_t{head_dim};
    case Format::kFp8E4M3:
    case Format::kFp8E5M2:
    case Format::kQ8_0:
      return head_dim;
    case Format::kQ4_0:
      return head_dim / 2;
    case Format::kToken:
    case Format::kChannel:
      return encoding.group * packed_bytes(encoding.bits, head_dim);
  }
  unknown(encoding);
}

int64_t unit_meta_bytes(const Encoding& encoding, int head_dim) {
  switch (encoding.format) {
    case Format::kF32:
    case Format::kF16:
    case Format::kBf16:
      return 0;
    case Format::kFp8E4M3:
    case Format::kFp8E5M2:
      return 4;
    case Format::kQ8_0:
    case Format::kQ4_0:
      return 2 * int64_t{head_dim / kGgmlBlock};
    case Format::kToken:
      return encoding.affine ? 8 : 4;
    case Format::kChannel:
      return channel_meta_bytes(encoding, head_dim);
  }
  unknown(encoding);
}

void encode_unit_scalar(const Encoding& encoding, int head_dim, const UnitJob& job) {
  switch (encoding.format) {
    case Format::kF32:
      std::memcpy(job.data, job.rows, sizeof(float) * static_cast<size_t>(head_dim));
      return;
    case Format::kF16:
      for (int i = 0; i < head_dim; ++i) store(job.data, i, f32_to_f16(job.rows[i]));
      return;
    case Format::kBf16:
      for (int i = 0; i < head_dim; ++i) store(job.data, i, f32_to_bf16(job.rows[i]));
      return;
    case Format::kFp8E4M3:
    case Format::kFp8E5M2:
      return encode_fp8(encoding.format, head_dim, job.rows, job.data, job.meta);
    case Format::kQ8_0:
      return encode_q8_0(head_dim, job.rows, job.data, job.meta);
    case Format::kQ4_0:
      return encode_q4_0(head_dim, job.rows, job.data, job.meta);
    case Format::kToken:
      return encode_token(encoding, head_dim, job.rows, job.data, job.meta);
    case Format::kChannel:
      return encode_channel(encoding, head_dim, job.rows, job.data, job.meta);
  }
  unknown(encoding);
}

void encode_units(const Encoding& encoding, int head_dim, std::span<const UnitJob> jobs) {
  if (!isa_is_scalar()) return encode_units_simd(encoding, head_dim, jobs);
  for (const UnitJob& job : jobs) encode_unit_scalar(encoding, head_dim, job);
}

void encode_unit(const Encoding& encoding, int head_dim, const float* rows, std::byte* data,
                 std::byte* meta) {
  const UnitJob job{rows, data, meta};
  encode_units(encoding, head_dim, {&job, 1});
}

void decode_row(const Encoding& encoding, int head_dim, const std::byte* data, const std::byte* meta, int row,
                float* out) {
  switch (encoding.format) {
    case Format::kF32:
      std::memcpy(out, data, sizeof(float) * static_cast<size_t>(head_dim));
      return;
    case Format::kF16:
      convert_f16_to_f32(data, out, head_dim);
      return;
    case Format::kBf16:
      for (int i = 0; i < head_dim; ++i) out[i] = bf16_to_f32(load<uint16_t>(data, i));
      return;
    case Format::kFp8E4M3:
    case Format::kFp8E5M2:
      return decode_fp8(encoding.format, head_dim, data, meta, out);
    case Format::kQ8_0:
      return decode_q8_0(head_dim, data, meta, out);
    case Format::kQ4_0:
      return decode_q4_0(head_dim, data, meta, out);
    case Format::kToken:
      return decode_token(encoding, head_dim, data, meta, out);
    case Format::kChannel:
      return decode_channel(encoding, head_dim, data, meta, row, 1, out);
  }
  unknown(encoding);
}

void decode_rows(const Side& side, int head_dim, int64_t first, int64_t count, float* out) {
  const int group = side.encoding.group;
  const int64_t end = first + count;
  for (int64_t row = first; row < end;) {
    const int64_t unit = row / group;
    const int64_t here = std::min(end, (unit + 1) * group) - row;
    const std::byte* data = side.data + unit * side.stride;
    const std::byte* meta = side.meta ? side.meta + unit * side.meta_stride : nullptr;
    if (side.encoding.format == Format::kChannel) {  // a unit's scales are read once for all its rows
      decode_channel(side.encoding, head_dim, data, meta, static_cast<int>(row % group),
                     static_cast<int>(here), out);
    } else {
      decode_row(side.encoding, head_dim, data, meta, 0, out);
    }
    row += here;
    out += here * head_dim;
  }
}

std::string encoding_name(const Encoding& encoding) {
  const std::string bits = std::to_string(encoding.bits);
  switch (encoding.format) {
    case Format::kF32:
      return "f32";
    case Format::kF16:
      return "f16";
    case Format::kBf16:
      return "bf16";
    case Format::kFp8E4M3:
      return "fp8e4m3";
    case Format::kFp8E5M2:
      return "fp8e5m2";
    case Format::kQ8_0:
      return "q8_0";
    case Format::kQ4_0:
      return "q4_0";
    case Format::kToken:
      return "token" + bits + (encoding.affine ? "" : "sym");
    case Format::kChannel:
      return "channel" + bits + "g" + std::to_string(encoding.group);
  }
  unknown(encoding);
}

std::string encodings_name(const Encoding& k, const Encoding& v) {
  return k == v ? encoding_name(k) : "k:" + encoding_name(k) + ",v:" + encoding_name(v);
}

}  // namespace kv
