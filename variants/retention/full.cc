// full: every token is kept, token i in slot i.
#include "variants/list.h"
#include "variants/retention/counted.h"

namespace kv::retention {

const RetentionEntry full{
    {.name = "full", .help = "keeps every token", .source = "", .parameters = {}},
    {.make = [](const Stage&, const RetentionContext&) -> std::unique_ptr<Retention> {
       return std::make_unique<KeepsAll>();
     },
     .slots = [](const Stage&, const SequenceLengths& lengths) { return lengths.tokens; },
     .keeps_all = true}};

}  // namespace kv::retention
