// observed (arXiv:2306.14048 in kvpress): keeps the tokens of the largest mean attention over the queries that see them.
#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

std::unique_ptr<Rule> make_observed(const Parameters& p) {
  return cut_of(parameter(p, "budget"), [](const auto& slots, const Prompt& prompt) {
    std::vector<double> scores;
    for (const Slot& slot : slots)
      scores.push_back(slot.accumulated_weight / static_cast<double>(prompt.tokens - slot.token));
    return scores;
  });
}

}  // namespace

const Oracle observed{"observed", make_observed};

}  // namespace kv::reference::policy
