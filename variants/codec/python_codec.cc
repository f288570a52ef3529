// python_codec: the functions encode and decode of a user's file in Python (configs/policies.md). A row is encoded when it comes,
// decoded at once and stored as f32, so that attention reads what a cache of the codes would. The codes are counted and thrown
// away: bits a value are those that encode has returned, and the cache itself holds 32.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry python_codec{
    {.name = "python_codec",
     .help = "your functions encode and decode in Python; codes are counted, rows held decoded",
     .source = "configs/policies.md",
     .parameters =
         {Parameter::text("file", "", "a file with encode and decode; its name may be left out").as_first(),
          prefill_parameter()}},
    {.make = [](const Stage& stage) {
      const Encoding decoded{.format = Format::kF32, .bits = 32};
      return Codec{.k = decoded, .v = decoded, .function = stage.text("file") + ":encode+decode"};
    }}};

}  // namespace kv::codec
