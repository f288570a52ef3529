// token: integer codes of any width under one scale (and zero point) per token and head.
//
// The plainest quantisation, and the control of kivi: a single large channel of a token sets the step of all
// others.
#include "variants/codec/expected_error.h"
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry token{
    {.name = "token",
     .help = "integer codes, one f32 scale per token and head",
     .source = "",
     .parameters = {Parameter::integer("bits", "8", 1, 16, {3}, "bits a code"),
                    Parameter::choice("mode", {"affine", "symmetric"},
                                      "from min to max with a zero point, or from -absmax to absmax"),
                    residual_parameter("0"), first_parameter(), read_parameter(), prefill_parameter(),
                    rotate_parameter(), k_mean_parameter()}},
    {.make = [](const Stage& stage) {
      const int bits = static_cast<int>(stage.integer("bits"));
      const bool affine = stage.text("mode") == "affine";
      Interval error{};
      if (affine) error = affine_error(bits, kWholeRow);
      if (!affine && bits > 1)
        error = symmetric_error(bits, kWholeRow);  // 1 bit is refused: unsupported_reason
      Codec codec = one_encoding(
          stage, {.format = Format::kToken, .bits = static_cast<uint8_t>(bits), .affine = affine}, error);
      codec.mean_rows = mean_rows(stage);
      return codec;
    }}};

}  // namespace kv::codec
