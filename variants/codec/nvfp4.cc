// nvfp4: NVIDIA's 4-bit floats, 16 E2M1 under one E4M3 scale, and an f32 above those (kernels/format/nvfp4.h).
//
// 4.5 bits an element and, with tensor=row, 4 bytes a row: the tensor that the f32 is for is then a token's row of a head,
// which is whole when it is appended. tensor=one leaves the f32 out, as engines do that have not calibrated it. Over
// N(0,1) both have an error of 0.095: 16 elements' absmax is 1.77 on average, and E2M1's steps below it are 1/12 to 1/3 of
// that; the scale's own rounding adds a thirtieth.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry nvfp4{
    {.name = "nvfp4",
     .help = "4-bit floats, one 8-bit scale per 16 elements and one f32 per token and head",
     .source = "NVIDIA (arXiv:2509.25149)",
     .parameters = {Parameter::choice("tensor", {"row", "one"},
                                      "what the f32 is for: a row, or 1 and not stored"),
                    residual_parameter("0"), first_parameter(), read_parameter(), prefill_parameter(),
                    rotate_parameter()}},
    {.make = [](const Stage& stage) {
      const bool second = stage.text("tensor") == "row";
      return one_encoding(stage, {.format = Format::kNvFp4, .bits = 4, .second = second}, {0.082, 0.110});
    }}};

}  // namespace kv::codec
