// duo: two kinds of heads (DuoAttention, Xiao et al. 2024, arXiv:2410.10819). Retrieval heads keep every token; the
// others, streaming heads, the first `sinks` tokens and the newest `recent`, the query's own included.
//
// The retrieval heads are a parameter: their numbers, as in retrieval=0+3, or a share, which takes the first heads of
// every layer. The authors train a gate for each head on passkey texts and take the heads of the largest gates; nothing is
// trained here. Instead one head at a time is left with a window, and the loss is measured
// (configs/claims/duoattention.toml); layers are then given their heads one by one: 0:… + 1:….
//
// Slots have no metadata. The placement keeps each head's rows apart, so a streaming head holds at most sinks + recent
// rows. Prompts are read a window at a time, as the streaming heads need it.
//
// positions=cache is missing, because a query would have another position in every head.
#include <algorithm>

#include "variants/list.h"
#include "variants/retention/window.h"

namespace kv::retention {
namespace {

// Takes the same slices as the streaming heads, whose rows are `window`.
class RetrievalHead : public KeepsAll {
 public:
  explicit RetrievalHead(int64_t window) : window_(window) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<RetrievalHead>(*this); }
  Slice next(int64_t remaining) override {
    return {.tokens = std::clamp<int64_t>(window_ - count_, 1, remaining)};
  }

 private:
  int64_t window_;
};

int64_t streaming_rows(const Stage& stage, int64_t max_tokens) {
  return stage.rows("recent", max_tokens) + stage.integer("sinks");
}

std::unique_ptr<Retention> make_duo(const Stage& stage, const RetentionContext& context) {
  if (stage.names_head("retrieval", context.head % context.kv_heads, context.kv_heads))
    return std::make_unique<RetrievalHead>(streaming_rows(stage, context.max_tokens));
  return std::make_unique<Window>(
      UnitRing(context.units, stage.integer("sinks"), stage.rows("recent", context.max_tokens)));
}
int64_t duo_slots(const Stage& stage, const SequenceLengths& lengths) {
  if (lengths.heads == 0 || stage.names_head("retrieval", lengths.head, lengths.heads)) return lengths.tokens;
  return std::min(lengths.tokens, streaming_rows(stage, lengths.max_tokens));
}

}  // namespace

const RetentionEntry duo{
    {.name = "duo",
     .help = "retrieval heads keep every token, streaming heads the first `sinks` and the newest `recent`",
     .source = "DuoAttention, Xiao et al. 2024 (arXiv:2410.10819); its code trains gates to find the "
               "retrieval heads, which are named here",
     .parameters = {Parameter::rows("recent", "256", {24}, "newest tokens of a streaming head"),
                    Parameter::integer("sinks", "64", 0, 65536, {8}, "first tokens of a streaming head"),
                    Parameter::heads("retrieval", "0.5",
                                     "the KV heads of each layer that keep every token")}},
    {.make = make_duo, .slots = duo_slots, .ragged = true}};

}  // namespace kv::retention
