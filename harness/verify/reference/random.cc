// random: every slot is equally likely to be evicted. The documented stream draws: token t of a layer's KV head takes
// number t of the stream of (seed, layer * kv_heads + head).
#include "harness/math/random.h"

#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

class Random : public Rule {
 public:
  explicit Random(const Parameters& p)
      : budget_(parameter(p, "budget")), seed_(static_cast<uint64_t>(parameter(p, "seed"))) {}
  int64_t capacity() const override { return budget_; }
  std::vector<double> costs(const std::vector<Slot>& slots, const Arrival& arrival) const override {
    std::vector<double> cost(slots.size(), kInfinite);
    const uint64_t stream = math::random::key({seed_, static_cast<uint64_t>(arrival.layer_head)});
    cost[math::random::below(stream, static_cast<uint64_t>(arrival.token), slots.size())] = 0.0;
    return cost;
  }

 private:
  int64_t budget_;
  uint64_t seed_;
};

}  // namespace

const Oracle random{"random", make_rule<Random>};

}  // namespace kv::reference::policy
