// q8_0: ggml's 8-bit blocks, 32 codes under one f16 scale; what llama.cpp stores with --cache-type-k q8_0.
//
// The step is absmax/127 of 32 numbers: over N(0,1) that is 2.4/127, and a uniform error of step/sqrt(12)
// is 5.5e-3, whatever head_dim.
#include "variants/codec/expected_error.h"
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {
namespace {
Codec make_q8_0(const Stage& stage) {
  const Encoding block{.format = Format::kQ8_0, .bits = 8};
  const Interval error = symmetric_error(8, {32, 32});
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

const CodecEntry q8_0{{.name = "q8_0",
                       .help = "8-bit codes, one f16 scale per 32 elements",
                       .source = "ggml (llama.cpp)",
                       .parameters = {residual_parameter("0"), read_parameter(), rotate_parameter(),
                                      arithmetic_parameter(), k_mean_parameter()}},
                      make_q8_0};

}  // namespace kv::codec
