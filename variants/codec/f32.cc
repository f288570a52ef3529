// f32: rows as they come. The control of every other codec.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry f32{
    {.name = "f32", .help = "32-bit floats, exact", .source = "", .parameters = {prefill_parameter()}},
    {.make = [](const Stage&) {
      const Encoding raw{.format = Format::kF32, .bits = 32};
      return Codec{.k = raw, .v = raw};
    }}};

}  // namespace kv::codec
