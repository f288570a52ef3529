// From rows of f32 to stored units and back, for every Format. This is the definition of each format's bytes.
//
// A unit is `encoding.group` rows: its codes lie in the data plane, its scales and zero points in the meta
// plane, so that codes are dense and aligned whatever the metadata. D is head_dim; numbers are little-endian.
//
//   format    data plane of a unit             meta plane of a unit   decoded element            range
//   kF32      D x binary32                     -                      as stored                  all
//   kF16      D x binary16                     -                      as stored                  ±65504, then
//   inf kBf16     D x upper half of a binary32     -                      as stored                  all
//   kFp8E4M3  D x FP8                          f32 scale              fp8 * scale                ±1.75 *
//   2^127 kFp8E5M2  D x FP8                          f32 scale              fp8 * scale                ±1.75
//   * 2^127 kQ8_0     D x int8                         D/32 x f16 scale       code * scale[i / 32] ±8.3e6
//   kQ4_0     D/32 x 16 bytes (below)          D/32 x f16 scale       (code - 8) * scale[i / 32] ±524032
//   kToken    D codes of `bits` (bits.h)       f32 scale              (code - 2^(bits-1)) * scale   ±2^126
//    affine   the same                         f32 scale, f32 zero    zero + code * scale        ±2^126
//   kChannel  group x D codes of `bits`,       D x scale, D x zero,   zero[i] + code * scale[i]  ±32752 (bits
//   <= 8),
//             row after row                    f16; f32 for bits > 8                             else ±2^126
//
// What is beyond the range is stored as the end of the range: finite rows never decode to NaN or infinity
// (kF16 aside). A NaN or an infinity makes the scale that covers it NaN, so that the damage shows; FP8 keeps
// NaN where it is, and takes infinity as its largest value.
//
// Rounding is to nearest even throughout, and against the scale as it is stored, so an element in range is
// off by at most scale/2, and what was decoded encodes to the same codes again. The exceptions are ggml's:
// kQ8_0 and kQ4_0 are its quantize_row_q8_0_ref and quantize_row_q4_0_ref bit for bit, which round halves
// away from zero and up, against the scale before it is rounded to f16, and cut 4-bit codes off at +7.
//
// kFp8*     The scale is per row, that is per token and head: a cache appends token by token, so a scale per
// head for
//           the whole sequence is not known when the first row is stored. It is the smallest power of two
//           that brings the row's largest magnitude into FP8's range: scaling is exact, and a floating-point
//           code gains nothing from the finer absmax/448.
// kQ4_0     Byte j of a block of 32 holds code j in its low and code j + 16 in its high nibble, as ggml has
// it. kToken    affine: scale = (max - min) / (2^bits - 1), zero = min; a constant row is exact. Symmetric:
// scale = absmax
//           / (2^(bits-1) - 1), for 2 bits and more; code 0 is never used.
// kChannel  KIVI's keys (Liu et al. 2024, arXiv:2402.02750): as affine kToken, but for each channel over
// `group` rows.
//           The metadata is f16, as KIVI has it (at 2 bits and 32 rows f32 would cost as much as the codes),
//           with the zero rounded down; beyond 8 bits it is f32, since an f16 scale would be coarser than the
//           codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/span.h"

namespace kv {

// Empty if rows of this head_dim (a multiple of 8) can be stored so, else the reason.
std::string unsupported_reason(const Encoding& encoding, int head_dim);

// Bytes of one unit's codes, and of its scales and zero points.
int64_t unit_data_bytes(const Encoding& encoding, int head_dim);
int64_t unit_meta_bytes(const Encoding& encoding, int head_dim);

// rows [encoding.group, head_dim] -> one unit. meta may be null where unit_meta_bytes is 0.
void encode_unit(const Encoding& encoding, int head_dim, const float* rows, std::byte* data, std::byte* meta);

// Row `row` (0 … group-1) of a unit -> out [head_dim].
void decode_row(const Encoding& encoding, int head_dim, const std::byte* data, const std::byte* meta, int row,
                float* out);

// Rows [first, first + count) of a span's side -> out [count, head_dim].
void decode_rows(const Side& side, int head_dim, int64_t first, int64_t count, float* out);

// The format's name in kernel columns and messages, for example "f16", "token4" or "channel2g32".
std::string encoding_name(const Encoding& encoding);

}  // namespace kv
