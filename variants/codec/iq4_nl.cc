// iq4_nl: ggml's 4-bit blocks of 16 uneven levels, under one f16 scale per 32 elements; llama.cpp's --cache-type-k iq4_nl.
//
// 4.5 bits an element, as q4_0. Levels are denser around 0, and the scale is the one that fits the chosen levels best: the error
// over N(0,1) is 0.079, where q4_0's is 0.086.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry iq4_nl{{.name = "iq4_nl",
                         .help = "4-bit codes of uneven levels, one f16 scale per 32 elements",
                         .source = "ggml (llama.cpp)",
                         .parameters = block_level_parameters()},
                        {.make = [](const Stage& stage) {
                          return block_levels(stage, Format::kIq4Nl, {0.072, 0.086});
                        }}};

}  // namespace kv::codec
