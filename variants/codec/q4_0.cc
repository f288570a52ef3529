// q4_0: ggml's 4-bit blocks, 32 codes under one f16 scale; what llama.cpp stores with --cache-type-k q4_0.
//
// The scale is max/-8, where max is the element of the largest magnitude with its sign, so that one side gets
// 8 steps and the other 7: what is above 7.5 steps there is cut off. Over N(0,1) the step is 2.4/8 and
// step/sqrt(12) is 0.087; the rare cut adds about a hundredth of it.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry q4_0{{.name = "q4_0",
                       .help = "4-bit codes, one f16 scale per 32 elements",
                       .source = "ggml (llama.cpp)",
                       .parameters = block_code_parameters()},
                      {.make =
                           [](const Stage& stage) {
                             return block_codes(stage, Format::kQ4_0, {0.080, 0.097});
                           },
                       .use_int8 = use_int8_arithmetic}};

}  // namespace kv::codec
