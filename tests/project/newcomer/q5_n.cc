// q5_n: 5-bit blocks of 32 codes from -15 to 16 under one f16 scale, whose fifth bits lie behind the nibbles.
#include "variants/codec/parameters.h"
#include "variants/list.h"

namespace kv::codec {

const CodecEntry q5_n{{.name = "q5_n",
                       .help = "5-bit codes from -15 to 16, one f16 scale per 32 elements",
                       .source = "",
                       .parameters = block_level_parameters()},
                      {.make = [](const Stage& stage) {
                        return block_levels(stage, Format::kQ5N, {0.039, 0.048});
                      }}};

}  // namespace kv::codec
