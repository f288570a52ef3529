// mxfp8: OCP's microscaling format, 32 FP8 under one power of two (kernels/format/mx.h).
//
// 8.25 bits an element. A power of two as scale gains floats nothing but range, so over N(0,1) the error is nearly fp8's,
// 0.0265, and above it by what saturates: magnitudes between 448 and 512 scales (e4m3), of which a block of 32 has some.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry mxfp8{
    {.name = "mxfp8",
     .help = "8-bit floats, a power of two per 32 elements",
     .source = "OCP Microscaling Formats (MX) v1.0",
     .parameters = {Parameter::choice("format", {"e4m3", "e5m2"}, "3 or 2 bits of mantissa"),
                    residual_parameter("0"), first_parameter(), read_parameter(), prefill_parameter(),
                    rotate_parameter()}},
    {.make = [](const Stage& stage) {
      const bool e5m2 = stage.text("format") == "e5m2";
      return one_encoding(stage, {.format = e5m2 ? Format::kMxFp8E5M2 : Format::kMxFp8E4M3, .bits = 8},
                          e5m2 ? Interval{0.042, 0.064} : Interval{0.021, 0.036});
    }}};

}  // namespace kv::codec
