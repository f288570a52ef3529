// q4_0: ggml's 4-bit blocks, 32 codes under one f16 scale; what llama.cpp stores with --cache-type-k q4_0.
//
// The scale is max/-8, where max is the element of the largest magnitude with its sign, so that one side gets
// 8 steps and the other 7: what is above 7.5 steps there is cut off. Over N(0,1) the step is 2.4/8 and
// step/sqrt(12) is 0.087; the rare cut adds about a hundredth of it.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {
namespace {
Codec make_q4_0(const Stage& stage) {
  const Encoding block{.format = Format::kQ4_0, .bits = 4};
  const Interval error{0.080, 0.097};
  return {.k = block,
          .v = block,
          .residual = residual_rows(stage),
          .read_copy = reads_copy(stage),
          .arithmetic = arithmetic_of(stage),
          .hadamard = stores_hadamard(stage),
          .mean_rows = mean_rows(stage),
          .k_error = error,
          .v_error = error};
}
}  // namespace

const CodecEntry q4_0{{.name = "q4_0",
                       .help = "4-bit codes, one f16 scale per 32 elements",
                       .source = "ggml (llama.cpp)",
                       .parameters = {residual_parameter("0"), read_parameter(), rotate_parameter(),
                                      arithmetic_parameter(), k_mean_parameter()}},
                      make_q4_0};

}  // namespace kv::codec
