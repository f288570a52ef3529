// knorm (arXiv:2406.11430): evicts the token whose key has the largest norm.
#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

std::unique_ptr<Rule> make_knorm(const Parameters& p) {
  return rule_of(parameter(p, "budget"), [](const Slot& slot, const Arrival&) { return -slot.squared_norm; });
}

}  // namespace

const Oracle knorm{"knorm", make_knorm};

}  // namespace kv::reference::policy
