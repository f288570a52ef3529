// q4_1: ggml's 4-bit blocks from their smallest element to their largest, f16 scale and minimum; llama.cpp's --cache-type-k q4_1.
//
// 5 bits an element. Over N(0,1) the range of 32 numbers is 4.1, a step a fifteenth of it, and the error step/sqrt(12), less the
// two elements that lie on the grid.
#include "variants/codec/expected_error.h"
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry q4_1{{.name = "q4_1",
                       .help = "4-bit codes, one f16 scale and minimum per 32 elements",
                       .source = "ggml (llama.cpp)",
                       .parameters = block_level_parameters()},
                      {.make = [](const Stage& stage) {
                        return block_levels(stage, Format::kQ4_1, affine_error(4, {32, 32}));
                      }}};

}  // namespace kv::codec
