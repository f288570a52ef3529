// ring: the last `window` tokens, the query's own included, and the first `sinks`; each new token overwrites
// the oldest one that is not a sink. Memory and the cost of a step stay constant, whatever has passed
// through.
//
// sinks=0 is sliding-window attention (Beltagy et al. 2020, arXiv:2004.05150). With sinks and positions=cache
// it is StreamingLLM (Xiao et al. 2024, arXiv:2309.17453), which rotates cached keys by their position in
// the cache; with positions=absolute keys keep the rotation they came with, so sinks drift ever farther away.
//
// If a codec encodes rows together, or keeps the newest raw, whole units leave (variants/core/unit_ring.h). The window is then
// the most that is kept; with kivi's groups of 32 up to 62 tokens fewer are.
#include "variants/list.h"
#include "variants/retention/positions.h"
#include "variants/retention/window.h"

namespace kv::retention {
namespace {

UnitRing ring_of(const Stage& stage, int64_t max_tokens, const RowUnits& units) {
  return {units, stage.integer("sinks"), stage.rows("window", max_tokens)};
}

}  // namespace

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
       return std::make_unique<Window>(ring_of(stage, context.max_tokens, context.units));
     },
     .slots =
         [](const Stage& stage, const SequenceLengths& lengths) {
           return ring_of(stage, lengths.max_tokens, lengths.units).rows(lengths.tokens);
         },
     .ring = ring_of,
     .sinks = [](const Stage& stage) { return stage.integer("sinks"); },
     .rotates_at_read = rotates_by_cache_position}};

}  // namespace kv::retention
