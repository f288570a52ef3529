#include "harness/verify/reference/policy.h"

#include <stdexcept>

#include "harness/verify/reference/list.h"

namespace kv::reference {

int64_t parameter(const Parameters& parameters, std::string_view name) {
  const auto found = parameters.find(name);
  if (found == parameters.end())
    throw std::logic_error("reference: no parameter '" + std::string(name) + "'");
  return found->second;
}

std::vector<double> Rule::costs(const std::vector<Slot>& slots, const Arrival&) const {
  return std::vector<double>(slots.size(), kInfinite);
}
bool Rule::restarts_weights(int64_t, int64_t) const { return false; }
std::optional<Cut> Rule::cut(const std::vector<Slot>&, const Prompt&) const { return std::nullopt; }
void Rule::settle(std::vector<Cut>&) const {}

const Oracle* find_oracle(std::string_view retention) {
  for (const Oracle* oracle : kOracles) {
    if (oracle->name == retention) return oracle;
  }
  return nullptr;
}

}  // namespace kv::reference
