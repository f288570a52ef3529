// k8v16: keys in q8_0, values in f16.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {
namespace {

Codec make_k8v16(const Stage&) {
  const Codec k = default_codec(q8_0), v = default_codec(f16);
  return {.k = k.k, .v = v.v, .k_error = k.k_error, .v_error = v.v_error};
}

}  // namespace

const CodecEntry k8v16{
    {.name = "k8v16", .help = "keys in q8_0, values in f16", .source = "", .parameters = {}},
    {.make = make_k8v16}};

}  // namespace kv::codec
