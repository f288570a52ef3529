// q8_0: ggml's 8-bit blocks, 32 codes under one f16 scale; what llama.cpp stores with --cache-type-k q8_0.
//
// The step is absmax/127 of 32 numbers: over N(0,1) that is 2.4/127, and a uniform error of step/sqrt(12)
// is 5.5e-3, whatever head_dim.
#include "variants/codec/expected_error.h"
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry q8_0{{.name = "q8_0",
                       .help = "8-bit codes, one f16 scale per 32 elements",
                       .source = "ggml (llama.cpp)",
                       .parameters = block_code_parameters()},
                      {.make =
                           [](const Stage& stage) {
                             return block_codes(stage, Format::kQ8_0, symmetric_error(8, {32, 32}));
                           },
                       .use_int8 = use_int8_arithmetic}};

}  // namespace kv::codec
