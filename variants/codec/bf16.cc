// bf16: the upper half of a binary32, rounded to nearest even; f32's range at f16's size, with 3 bits less
// precision.
//
// A normal number is off by at most 2^-8 of itself. Over N(0,1) the relative L2 error comes to about 1.7e-3,
// 8 times f16's.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry bf16{
    {.name = "bf16", .help = "16-bit floats (bfloat16)", .source = "", .parameters = {prefill_parameter()}},
    {.make = [](const Stage&) {
      const Encoding half{.format = Format::kBf16, .bits = 16};
      return Codec{.k = half, .v = half, .k_error = {1.2e-3, 2.4e-3}, .v_error = {1.2e-3, 2.4e-3}};
    }}};

}  // namespace kv::codec
