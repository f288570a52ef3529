// full: every token is kept, token i in slot i. Its position in the cache is its own, so positions=cache changes no answer but for
// the codec, which sees keys before RoPE (KVQuant, arXiv:2401.18079, section 3.2).
#include "variants/list.h"
#include "variants/retention/counted.h"
#include "variants/retention/positions.h"

namespace kv::retention {

const RetentionEntry full{
    {.name = "full", .help = "keeps every token", .source = "", .parameters = {positions_parameter()}},
    {.make = [](const Stage&, const RetentionContext&) -> std::unique_ptr<Retention> {
       return std::make_unique<KeepsAll>();
     },
     .slots = [](const Stage&, const SequenceLengths& lengths) { return lengths.tokens; },
     .keeps_all = true,
     .rotates_at_read = rotates_by_cache_position}};

}  // namespace kv::retention
