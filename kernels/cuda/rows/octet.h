// Eight consecutive elements of a row, which one lane holds.
#pragma once

#include "kernels/cuda/rows/pages.h"
#include "kernels/format/bits.h"
#include "kernels/format/list.h"

namespace kv::cuda {

inline constexpr int kOctet = 8;

// Elements [first, first + 8) of a row of any format, decoded exactly as in kernels/encode.h.
KV_HD inline void decode_octet(int head_dim, const StoredRow& row, int first, float (&x)[kOctet]) {
  const Encoding& e = row.encoding;
  visit_format(GpuFormats(), e.format, [&](auto format) {
    using F = decltype(format);
    for (int i = 0; i < kOctet; ++i) {
      if constexpr (F::kBits > 0) {
        x[i] = F::load_element(row.data, row.meta, first + i);
      } else {
        const std::byte* codes = row.data + row.row * packed_bytes(e.bits, head_dim);
        const int code = read_code(e.bits, head_dim, codes, first + i);
        x[i] = F::element_of(e, head_dim, row.meta, first + i, code);
      }
    }
  });
}

}  // namespace kv::cuda
