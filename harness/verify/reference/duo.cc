// duo (arXiv:2410.10819): a retrieval head keeps every token; any other keeps the first `sinks` and the newest
// `recent`.
#include <string>

#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

std::unique_ptr<Rule> make_duo(const Parameters& p) {
  const bool retrieves = parameter(p, "retrieval" + std::to_string(parameter(p, "kv_head"))) != 0;
  const int64_t sinks = parameter(p, "sinks");
  return rule_of(retrieves ? kUnlimited : sinks + parameter(p, "recent"),
                 [sinks](const Slot& slot, const Arrival&) {
                   return slot.token < sinks ? kInfinite : static_cast<double>(slot.token);
                 });
}

}  // namespace

const Oracle duo{"duo", make_duo};

}  // namespace kv::reference::policy
