// fifo: keeps the newest `budget` tokens; the oldest is overwritten. There is no FP64 policy for it.
#include "variants/list.h"
#include "variants/retention/evicting.h"

namespace kv::retention {
namespace {

class Fifo : public EvictingPolicy<Fifo, SlotScores::kNone> {
  using EvictingPolicy::EvictingPolicy;

  int64_t victim() const override { return std::ranges::min_element(tokens()) - tokens().begin(); }
};

}  // namespace

const RetentionEntry fifo = Fifo::entry(
    {.name = "fifo", .help = "keeps the newest tokens", .source = "", .parameters = {budget_parameter()}});

}  // namespace kv::retention
