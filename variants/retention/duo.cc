// duo: two kinds of heads (DuoAttention, Xiao et al. 2024, arXiv:2410.10819). Retrieval heads keep every token; the
// others, streaming heads, the first `sinks` tokens and the newest `recent`, the query's own included.
//
// Which KV heads retrieve is a parameter: their numbers, as in retrieval=0+3, or a share, which takes the first ones of
// every layer, whatever they do. The authors train a gate for each head on passkey texts and take those of the largest
// gates; nothing is trained here. What stands in for it is leaving one head at a time with a window and measuring what
// that costs (configs/claims/duoattention.toml); layers are then given their heads one by one: 0:… + 1:….
//
// Nothing is stored a slot. The placement has each head's rows apart, so that a streaming head holds no more than its
// sinks + recent rows. Prompts are read a window at a time, as the streaming heads want it.
//
// There is no positions=cache: a query would stand at another position in every head.
#include <algorithm>

#include "variants/list.h"
#include "variants/retention/window.h"

namespace kv::retention {
namespace {

class RetrievalHead : public Retention {
 public:
  // `window`: the rows of a streaming head.
  explicit RetrievalHead(int64_t window) : window_(window) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<RetrievalHead>(*this); }
  int64_t admit(std::span<const float>) override { return count_++; }
  int64_t slots() const override { return count_; }
  int64_t token_at(int64_t slot) const override { return slot; }
  int64_t slots_after(int64_t tokens) const override { return tokens; }
  // All heads take the same slices.
  Slice next(int64_t remaining) override {
    return {.tokens = std::clamp<int64_t>(window_ - count_, 1, remaining)};
  }
  void truncate(int64_t tokens) override { count_ = tokens; }
  void save(Writer& to) const override { to.put(count_); }
  bool load(Reader& from, int64_t tokens) override {
    count_ = from.get<int64_t>();
    return count_ == tokens;
  }

 private:
  int64_t window_;
  int64_t count_ = 0;
};

std::unique_ptr<Retention> make_duo(const Stage& stage, const RetentionContext& context) {
  const int64_t recent = stage.rows("recent", context.max_tokens), sinks = stage.integer("sinks");
  if (stage.names_head("retrieval", context.head % context.kv_heads, context.kv_heads))
    return std::make_unique<RetrievalHead>(recent + sinks);
  return std::make_unique<Window>(recent, sinks);
}
int64_t duo_slots(const Stage& stage, const SequenceLengths& lengths) {
  if (lengths.heads == 0 || stage.names_head("retrieval", lengths.head, lengths.heads)) return lengths.tokens;
  return std::min(lengths.tokens, stage.rows("recent", lengths.max_tokens) + stage.integer("sinks"));
}
int64_t duo_metadata_bytes(const Stage&, int64_t) { return 0; }

}  // namespace

const RetentionEntry duo{
    {.name = "duo",
     .help = "retrieval heads keep every token, streaming heads the first `sinks` and the newest `recent`",
     .source = "DuoAttention, Xiao et al. 2024 (arXiv:2410.10819)",
     .parameters = {Parameter::rows("recent", "256", {24}, "newest tokens of a streaming head"),
                    Parameter::integer("sinks", "64", 0, 65536, {8}, "first tokens of a streaming head"),
                    Parameter::heads("retrieval", "0.5",
                                     "the KV heads of each layer that keep every token")}},
    make_duo,
    duo_slots,
    duo_metadata_bytes,
    /*keeps_all=*/false,
    /*scores=*/false,
    /*cuts_prompt=*/false,
    "a full cache overwrites rows",
    /*ragged=*/true};

}  // namespace kv::retention
