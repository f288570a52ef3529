// Sizes and names of stored units, for every Format. kernels/encode.h makes units of rows, and rows of units.
//
// A unit is `encoding.group` rows: its codes lie in the data plane, its scales and zero points in the meta plane,
// so that codes are dense and aligned whatever the metadata. D is head_dim; numbers are little-endian. Each
// format's own file (f32.h … channel.h) says how it picks scales and rounds.
//
//   format     data plane of a unit           meta plane of a unit    decoded element           range
//   kF32       D binary32                     -                       as stored                 all
//   kF16       D binary16                     -                       as stored                 65504
//   kBf16      D upper halves of a binary32   -                       as stored                 3.39e38
//   kFp8E4M3   D FP8                          f32 scale               fp8 * scale               1.75 * 2^127
//   kFp8E5M2   D FP8                          f32 scale               fp8 * scale               1.75 * 2^127
//   kQ8_0      D int8                         D/32 f16 scales         code * scale[i/32]        8.3e6
//   kQ4_0      D/32 blocks of 16 bytes        D/32 f16 scales         (code - 8) * scale[i/32]  524032
//   kToken     D codes of `bits` (bits.h)     f32 scale               (code - middle) * scale   2^126
//    affine    the same                       f32 scale, f32 zero     zero + code * scale       2^126
//   kChannel   group x D codes of `bits`      D scales, D zeros: f16  zero[i] + code * scale[i] 32752
//    bits > 8  the same                       D scales, D zeros: f32  the same                  2^126
//   kMxFp8…    D FP8                          D/32 E8M0               fp8 * scale[i/32]         1.75 * 2^127
//   kMxFp4     D E2M1 (bits.h)                D/32 E8M0               e2m1 * scale[i/32]        1.5 * 2^127
//   kNvFp4     D E2M1 (bits.h)                D/16 E4M3               e2m1 * e4m3[i/16]         2688
//    second    the same                       f32, D/16 E4M3          the same, times the f32   2^127
//   kTurbo     D codes of `bits` (turbo.h)    f16 scale               level * scale             65504 * sqrt(D)
//    second    the same, D signs              f16 scale, f16 length   the same + sketched error the same
//   kVq        `bits` x D/8 indices (vq.h)    -                       sum of words' elements  of the words
//   kQ4_1, kQ5_0, kQ5_1, kIq4Nl, kQ6_0: ggml_levels.h                                           6.5e4 to 8.3e6
#pragma once

#include <cstdint>
#include <string>

#include "kernels/span.h"

namespace kv {

// Empty if rows of this head_dim (a multiple of 8) can be stored so, else the reason.
std::string unsupported_reason(const Encoding& encoding, int head_dim);

// Bytes of one unit's codes, and of its scales and zero points.
int64_t unit_data_bytes(const Encoding& encoding, int head_dim);
int64_t unit_meta_bytes(const Encoding& encoding, int head_dim);

// The format's name in kernel columns and messages, for example "f16", "token4" or "channel2g32".
std::string encoding_name(const Encoding& encoding);
// The names of both sides: "f16", or "k:channel4g32,v:token4".
std::string encodings_name(const Encoding& k, const Encoding& v);

}  // namespace kv
