// fifo: keeps the newest `budget` tokens; the oldest is overwritten. There is no FP64 policy for it.
#include <algorithm>

#include "variants/list.h"
#include "variants/retention/evicting.h"

namespace kv::retention {
namespace {

class Fifo : public Evicting {
 public:
  Fifo(int64_t budget, const RetentionContext& context) : Evicting(budget, context, SlotScores::kNone) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<Fifo>(*this); }

 private:
  int64_t victim() const override {
    const auto token = tokens();
    return std::min_element(token.begin(), token.end()) - token.begin();
  }
};

std::unique_ptr<Retention> make_fifo(const Stage& stage, const RetentionContext& context) {
  return std::make_unique<Fifo>(stage.rows("budget", context.max_tokens), context);
}
int64_t fifo_slots(const Stage& stage, const SequenceLengths& lengths) {
  return std::min(lengths.tokens, stage.rows("budget", lengths.max_tokens));
}
int64_t fifo_metadata_bytes(const Stage& stage, int64_t max_tokens) {
  return Evicting::metadata_bytes(stage.rows("budget", max_tokens), max_tokens, SlotScores::kNone);
}

}  // namespace

const RetentionEntry fifo{
    {.name = "fifo",
     .help = "keeps the newest tokens",
     .source = "",
     .parameters = {Parameter::rows("budget", "256", {32}, "rows kept, the query's own included")}},
    make_fifo,
    fifo_slots,
    fifo_metadata_bytes,
    /*keeps_all=*/false};

}  // namespace kv::retention
