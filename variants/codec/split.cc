// split: one codec for K and another for V, of those that store a row at a time and need no parameters.
//
// Keys decide where attention looks and values what it sees there, and errors in the two cost differently;
// llama.cpp has the same choice as --cache-type-k and --cache-type-v.
#include <stdexcept>

#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv {

Codec row_codec(std::string_view name) {
  for (const CodecEntry* entry :
       {&codec::f32, &codec::f16, &codec::bf16, &codec::fp8, &codec::q8_0, &codec::q4_0, &codec::token}) {
    if (entry->name == name) return default_codec(*entry);
  }
  throw std::logic_error("no codec of single rows is called '" + std::string(name) + "'");
}

namespace codec {
namespace {

Codec make_split(const Stage& stage) {
  const Codec k = row_codec(stage.text("k")), v = row_codec(stage.text("v"));
  return {.k = k.k,
          .v = v.v,
          .read_copy = reads_copy(stage),
          .hadamard = stores_hadamard(stage),
          .k_error = k.k_error,
          .v_error = v.v_error};
}

// The names of row_codec(), written out: entries of other files may be initialised after this one.
Parameter side_parameter(std::string_view name, std::string_view help) {
  return Parameter::choice(name, {"f16", "f32", "bf16", "fp8", "q8_0", "q4_0", "token"}, help);
}

}  // namespace

const CodecEntry split{{.name = "split",
                        .help = "a codec for K and another for V",
                        .source = "llama.cpp",
                        .parameters = {side_parameter("k", "K's codec, with its defaults"),
                                       side_parameter("v", "V's codec, with its defaults"), read_parameter(),
                                       prefill_parameter(), rotate_parameter()}},
                       {.make = make_split}};

}  // namespace codec
}  // namespace kv
