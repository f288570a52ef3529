// k8v16: keys in q8_0, values in f16.
#include "variants/list.h"

namespace kv::codec {
namespace {

Codec make(const Stage&) {
  const Codec k = q8_0.make({"q8_0", {{"read", "view"}}}), v = f16.make({"f16", {}});
  return {.k = k.k, .v = v.v, .k_error = k.k_error, .v_error = v.v_error};
}

}  // namespace

const CodecEntry k8v16{
    {.name = "k8v16", .help = "keys in q8_0, values in f16", .source = "", .parameters = {}}, make};

}  // namespace kv::codec
