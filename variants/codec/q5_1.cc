// q5_1: ggml's 5-bit blocks from their smallest element to their largest, f16 scale and minimum; llama.cpp's --cache-type-k q5_1.
//
// 6 bits an element. The error is q4_1's with 31 steps in place of 15: 0.038 over N(0,1).
#include "variants/codec/expected_error.h"
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry q5_1{{.name = "q5_1",
                       .help = "5-bit codes, one f16 scale and minimum per 32 elements",
                       .source = "ggml (llama.cpp)",
                       .parameters = block_level_parameters()},
                      {.make = [](const Stage& stage) {
                        return block_levels(stage, Format::kQ5_1, affine_error(5, {32, 32}));
                      }}};

}  // namespace kv::codec
