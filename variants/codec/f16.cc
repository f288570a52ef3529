// f16: IEEE binary16, rounded to nearest even; what inference engines store by default.
//
// A normal number is off by at most 2^-11 of itself. Over N(0,1) the relative L2 error comes to about 2.1e-4.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry f16{
    {.name = "f16",
     .help = "16-bit floats (IEEE binary16)",
     .source = "",
     .parameters = {prefill_parameter()}},
    {.make = [](const Stage&) {
      const Encoding half{.format = Format::kF16, .bits = 16};
      return Codec{.k = half, .v = half, .k_error = {1.5e-4, 3e-4}, .v_error = {1.5e-4, 3e-4}};
    }}};

}  // namespace kv::codec
