// q6_0: ik_llama.cpp's 6-bit blocks, 32 codes under one f16 scale.
//
// 6.5 bits an element. Steps are a quarter of q4_0's, and so is the error: 0.021 over N(0,1).
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry q6_0{{.name = "q6_0",
                       .help = "6-bit codes, one f16 scale per 32 elements",
                       .source = "ik_llama.cpp",
                       .parameters = block_level_parameters()},
                      {.make = [](const Stage& stage) {
                        return block_levels(stage, Format::kQ6_0, {0.0195, 0.0240});
                      }}};

}  // namespace kv::codec
