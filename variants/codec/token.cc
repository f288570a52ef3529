// token: integer codes of any width under one scale (and zero point) per token and head.
//
// The plainest quantisation, and the control of kivi: a single large channel of a token sets the step of all
// others.
#include "variants/codec/expected_error.h"
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {
namespace {
Codec make_token(const Stage& stage) {
  const int bits = static_cast<int>(stage.integer("bits"));
  const bool affine = stage.text("mode") == "affine";
  const Encoding row{.format = Format::kToken, .bits = static_cast<uint8_t>(bits), .affine = affine};
  Codec codec{.k = row,
              .v = row,
              .residual = residual_rows(stage),
              .read_copy = reads_copy(stage),
              .hadamard = stores_hadamard(stage),
              .mean_rows = mean_rows(stage),
              .k_error = {},
              .v_error = {}};
  if (!affine && bits < 2) return codec;  // unsupported_reason says why there is no such codec
  codec.k_error = codec.v_error = affine ? affine_error(bits, kWholeRow) : symmetric_error(bits, kWholeRow);
  return codec;
}
}  // namespace

const CodecEntry token{
    {.name = "token",
     .help = "integer codes, one f32 scale per token and head",
     .source = "",
     .parameters = {Parameter::integer("bits", "8", 1, 16, {3}, "bits a code"),
                    Parameter::choice("mode", {"affine", "symmetric"},
                                      "from min to max with a zero point, or from -absmax to absmax"),
                    residual_parameter("0"), read_parameter(), rotate_parameter(), k_mean_parameter()}},
    make_token};

}  // namespace kv::codec
