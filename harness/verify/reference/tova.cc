// tova (arXiv:2401.06104): evicts the token that gets the least attention from the newest token's queries.
#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

std::unique_ptr<Rule> make_tova(const Parameters& p) {
  return rule_of(parameter(p, "budget"), [](const Slot& slot, const Arrival&) { return slot.last_weight; });
}

}  // namespace

const Oracle tova{"tova", make_tova};

}  // namespace kv::reference::policy
