// f32: rows as they come. The control of every other codec.
#include "variants/list.h"

namespace kv::codec {
namespace {
Codec make_f32(const Stage&) {
  const Encoding raw{.format = Format::kF32, .bits = 32};
  return {.k = raw, .v = raw, .k_error = {0.0, 0.0}, .v_error = {0.0, 0.0}};
}
}  // namespace

const CodecEntry f32{{.name = "f32", .help = "32-bit floats, exact", .source = "", .parameters = {}},
                     make_f32};

}  // namespace kv::codec
