// q5_0: ggml's 5-bit blocks, 32 codes under one f16 scale; llama.cpp's --cache-type-k q5_0.
//
// 5.5 bits an element. Steps are half as wide as q4_0's, and so is the error: 0.043 over N(0,1).
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry q5_0{{.name = "q5_0",
                       .help = "5-bit codes, one f16 scale per 32 elements",
                       .source = "ggml (llama.cpp)",
                       .parameters = block_level_parameters()},
                      {.make = [](const Stage& stage) {
                        return block_levels(stage, Format::kQ5_0, {0.039, 0.048});
                      }}};

}  // namespace kv::codec
