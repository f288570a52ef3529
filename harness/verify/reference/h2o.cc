// h2o (arXiv:2306.14048): keeps the `heavy` tokens with the most attention weight from all queries so far, and the
// newest `recent`.
#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

std::unique_ptr<Rule> make_h2o(const Parameters& p) {
  const int64_t recent = parameter(p, "recent");
  return rule_of(parameter(p, "heavy") + recent, [recent](const Slot& slot, const Arrival& arrival) {
    return slot.token > arrival.token - recent ? kInfinite : slot.accumulated_weight;
  });
}

}  // namespace

const Oracle h2o{"h2o", make_h2o};

}  // namespace kv::reference::policy
