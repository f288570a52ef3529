// mxfp4: OCP's microscaling format, 32 E2M1 under one power of two (kernels/format/mx.h).
//
// 4.25 bits an element. The largest magnitude of a block lies anywhere between two powers of two: E2M1's steps are then up
// to twice as coarse as necessary, or magnitudes above 6 scales saturate. Over N(0,1) the error is
// 0.115; nvfp4's is 0.095.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry mxfp4{{.name = "mxfp4",
                        .help = "4-bit floats, a power of two per 32 elements",
                        .source = "OCP Microscaling Formats (MX) v1.0",
                        .parameters = {residual_parameter("0"), first_parameter(), read_parameter(),
                                       prefill_parameter(), rotate_parameter()}},
                       {.make = [](const Stage& stage) {
                         return one_encoding(stage, {.format = Format::kMxFp4, .bits = 4}, {0.095, 0.135});
                       }}};

}  // namespace kv::codec
