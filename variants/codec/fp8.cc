// fp8: OCP FP8 under one f32 scale per token and head (Micikevicius et al. 2022, arXiv:2209.05433).
//
// The scale is the smallest power of two under which the row's largest value fits (kernels/format/fp8.h), where engines
// scale that value to 448: on N(0,1) rows of 64, 128 and 256 values their error is 6, 3 and 2 % less.
//
// The error is relative to each element as long as it is not 2^-14 below the row's largest (e4m3; e5m2:
// 2^-29), so one outlier does no harm that it does to integer codes. Over N(0,1) it is f16's 2.1e-4 times 2^7
// (e4m3 has 7 bits of mantissa less) or 2^8 (e5m2); truncation would double it.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry fp8{
    {.name = "fp8",
     .help =
         "8-bit floats, a power of two per token and head as scale (absmax: 3 % less error at head_dim 128)",
     .source = "vLLM, FlashInfer, TensorRT-LLM",
     .parameters = {Parameter::choice("format", {"e4m3", "e5m2"}, "3 or 2 bits of mantissa"),
                    first_parameter(), read_parameter(), prefill_parameter()}},
    {.make = [](const Stage& stage) {
      const bool e5m2 = stage.text("format") == "e5m2";
      const Encoding side{.format = e5m2 ? Format::kFp8E5M2 : Format::kFp8E4M3, .bits = 8};
      const Interval error = e5m2 ? Interval{0.042, 0.064} : Interval{0.021, 0.032};
      return Codec{.k = side,
                   .v = side,
                   .first = first_rows(stage),
                   .read_copy = reads_copy(stage),
                   .k_error = error,
                   .v_error = error};
    }}};

}  // namespace kv::codec
