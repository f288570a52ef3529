// streaming (arXiv:2309.17453, once after the prompt): keeps the first `sinks` tokens and the newest.
#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

std::unique_ptr<Rule> make_streaming(const Parameters& p) {
  return cut_of(parameter(p, "budget"), [sinks = parameter(p, "sinks")](const auto& slots, const Prompt&) {
    std::vector<double> scores;
    for (const Slot& slot : slots)
      scores.push_back(slot.token < sinks ? kInfinite : static_cast<double>(slot.token));
    return scores;
  });
}

}  // namespace

const Oracle streaming{"streaming", make_streaming};

}  // namespace kv::reference::policy
