// split: one codec for K and another for V, each with its own parameters.
//
// Keys decide where attention looks and values what it sees there, and errors in the two cost differently;
// llama.cpp has the same choice as --cache-type-k and --cache-type-v. Rows wait for the longer group and the longer
// residual of the two sides, and as many of the first stay raw as either side asks for.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv {

Codec codec_by_text(const std::string& text) {
  const size_t open = std::min(text.find('('), text.size());
  for (const CodecEntry* entry : kCodecs) {
    if (entry->name != std::string_view(text).substr(0, open)) continue;
    Stage stage = default_stage(*entry);
    for (size_t at = open + 1; at < text.size();) {
      const size_t equals = text.find('=', at), end = text.find_first_of(",)", equals);
      stage.values[text.substr(at, equals - at)] = text.substr(equals + 1, end - equals - 1);
      at = end + 1;
    }
    return entry->make(stage);
  }
  throw std::logic_error("no codec is called '" + text + "'");
}

namespace codec {
namespace {

Codec make_split(const Stage& stage) {
  const Codec k = codec_by_text(stage.text("k")), v = codec_by_text(stage.text("v"));
  const int64_t mean = mean_rows(stage);
  return {.k = k.k,
          .v = v.v,
          .rows_together = std::lcm(std::lcm(k.unit_rows(), v.unit_rows()), std::max<int64_t>(mean, 1)),
          .residual = std::max(k.residual, v.residual),
          .first = std::max(k.first, v.first),
          .read_copy = reads_copy(stage),
          .k_rotation = k.k_rotation,
          .v_rotation = v.v_rotation,
          .mean_rows = mean,
          .k_error = k.k_error,
          .v_error = v.v_error,
          .k_books = k.k_books,
          .v_books = v.v_books,
          .k_absent = k.k_absent,
          .v_absent = v.v_absent};
}

Parameter side_parameter(std::string_view name, std::string_view help) {
  return Parameter::codec(name,
                          {"f16", "q8_0", "kivi(bits=2,group=8,residual=40)", "mxfp8", "nvfp4(tensor=one)",
                           "turbo(bits=2,residual=40)", "token(bits=4,rotate=hadamard)"},
                          help);
}

}  // namespace

const CodecEntry split{{.name = "split",
                        .help = "a codec for K and another for V",
                        .source = "llama.cpp",
                        .parameters = {side_parameter("k", "K's codec"), side_parameter("v", "V's codec"),
                                       read_parameter(), prefill_parameter(), k_mean_parameter()}},
                       {.make = make_split}};

}  // namespace codec
}  // namespace kv
