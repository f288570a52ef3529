// ring: the last `window` tokens, the query's own included, and the first `sinks`; each new token overwrites
// the oldest one that is not a sink. Memory and the cost of a step stay constant, whatever has passed
// through.
//
// sinks=0 is sliding-window attention (Beltagy et al. 2020, arXiv:2004.05150). With sinks and positions=cache
// it is StreamingLLM (Xiao et al. 2024, arXiv:2309.17453), which rotates cached keys by their position in
// the cache; with positions=absolute keys keep the rotation they came with, so sinks drift ever farther away.
#include <algorithm>

#include "variants/list.h"
#include "variants/retention/positions.h"
#include "variants/retention/window.h"

namespace kv::retention {

const RetentionEntry ring{
    {.name = "ring",
     .help = "the last `window` tokens and the first `sinks`, in constant memory",
     .source = "sliding window (arXiv:2004.05150), StreamingLLM (arXiv:2309.17453)",
     .parameters = {Parameter::rows("window", "1024", {24},
                                    "newest tokens kept, the query's own included; model: the layer's window")
                        .or_word("model"),
                    Parameter::integer("sinks", "0", 0, 65536, {4}, "first tokens kept for good"),
                    positions_parameter()}},
    {.make = [](const Stage& stage, const RetentionContext& context) -> std::unique_ptr<Retention> {
       return std::make_unique<Window>(stage.rows("window", context.max_tokens), stage.integer("sinks"));
     },
     .slots =
         [](const Stage& stage, const SequenceLengths& lengths) {
           return std::min(lengths.tokens, stage.rows("window", lengths.max_tokens) + stage.integer("sinks"));
         },
     .sinks = [](const Stage& stage) { return stage.integer("sinks"); },
     .rotates_at_read = rotates_by_cache_position}};

}  // namespace kv::retention
