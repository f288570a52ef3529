#include "kernels/encoding.h"

#include <cstring>
#include <stdexcept>

#include "kernels/cpu/convert.h"
#include "kernels/math.h"

namespace kv {
namespace {

[[noreturn]] void unknown(const Encoding& encoding) {
  throw std::logic_error("no encoder for format " + std::to_string(static_cast<int>(encoding.format)));
}

template <class T>
T load(const std::byte* p, int i) {
  T value;
  std::memcpy(&value, p + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

int64_t unit_data_bytes(const Encoding& encoding, int head_dim) {
  switch (encoding.format) {
    case Format::kF32:
      return 4 * int64_t{head_dim};
    case Format::kF16:
    case Format::kBf16:
      return 2 * int64_t{head_dim};
    default:
      unknown(encoding);
  }
}

int64_t unit_meta_bytes(const Encoding& encoding, int) {
  switch (encoding.format) {
    case Format::kF32:
    case Format::kF16:
    case Format::kBf16:
      return 0;
    default:
      unknown(encoding);
  }
}

void encode_unit(const Encoding& encoding, int head_dim, const float* rows, std::byte* data, std::byte*) {
  switch (encoding.format) {
    case Format::kF32:
      std::memcpy(data, rows, sizeof(float) * static_cast<size_t>(head_dim));
      return;
    case Format::kF16:
      convert_f32_to_f16(rows, reinterpret_cast<uint16_t*>(data), head_dim);
      return;
    case Format::kBf16:
      for (int i = 0; i < head_dim; ++i) {
        const uint16_t h = f32_to_bf16(rows[i]);
        std::memcpy(data + 2 * i, &h, 2);
      }
      return;
    default:
      unknown(encoding);
  }
}

void decode_row(const Encoding& encoding, int head_dim, const std::byte* data, const std::byte*, int,
                float* out) {
  switch (encoding.format) {
    case Format::kF32:
      std::memcpy(out, data, sizeof(float) * static_cast<size_t>(head_dim));
      return;
    case Format::kF16:
      for (int i = 0; i < head_dim; ++i) out[i] = f16_to_f32(load<uint16_t>(data, i));
      return;
    case Format::kBf16:
      for (int i = 0; i < head_dim; ++i) out[i] = bf16_to_f32(load<uint16_t>(data, i));
      return;
    default:
      unknown(encoding);
  }
}

std::string encoding_name(const Encoding& encoding) {
  switch (encoding.format) {
    case Format::kF32:
      return "f32";
    case Format::kF16:
      return "f16";
    case Format::kBf16:
      return "bf16";
    default:
      unknown(encoding);
  }
}

}  // namespace kv
