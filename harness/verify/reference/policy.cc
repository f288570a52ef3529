#include "harness/verify/reference/policy.h"

#include <stdexcept>

#include "harness/verify/reference/list.h"

namespace kv::reference {

namespace {

class SlotRule : public Rule {
 public:
  SlotRule(int64_t capacity, SlotCost cost) : capacity_(capacity), cost_(std::move(cost)) {}
  int64_t capacity() const override { return capacity_; }
  std::vector<double> costs(const std::vector<Slot>& slots, const Arrival& arrival) const override {
    std::vector<double> all;
    for (const Slot& slot : slots) all.push_back(cost_(slot, arrival));
    return all;
  }

 private:
  int64_t capacity_;
  SlotCost cost_;
};

class CutRule : public Rule {
 public:
  CutRule(int64_t rows, CutScores scores) : rows_(rows), scores_(std::move(scores)) {}
  std::optional<Cut> cut(const std::vector<Slot>& slots, const Prompt& prompt) const override {
    if (prompt.tokens <= rows_) return std::nullopt;
    return Cut{scores_(slots, prompt), rows_};
  }

 private:
  int64_t rows_;
  CutScores scores_;
};

}  // namespace

std::unique_ptr<Rule> cut_of(int64_t rows, CutScores scores) {
  return std::make_unique<CutRule>(rows, std::move(scores));
}

std::unique_ptr<Rule> rule_of(int64_t capacity, SlotCost cost) {
  return std::make_unique<SlotRule>(capacity, std::move(cost));
}

int64_t parameter(const Parameters& parameters, std::string_view name) {
  const auto found = parameters.find(name);
  if (found == parameters.end())
    throw std::logic_error("reference: no parameter '" + std::string(name) + "'");
  return found->second;
}

std::vector<double> Rule::costs(const std::vector<Slot>& slots, const Arrival&) const {
  return std::vector<double>(slots.size(), kInfinite);
}
std::pair<int64_t, int64_t> Rule::gone(int64_t, const Groups&) const {
  throw std::logic_error("reference: this policy drops single rows");
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
