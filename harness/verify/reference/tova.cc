// tova (arXiv:2401.06104): evicts the token that gets the least attention from the newest token's queries.
#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

class Tova : public Rule {
 public:
  explicit Tova(const Parameters& p) : budget_(parameter(p, "budget")) {}
  int64_t capacity() const override { return budget_; }
  std::vector<double> costs(const std::vector<Slot>& slots, const Arrival&) const override {
    std::vector<double> cost;
    for (const Slot& s : slots) cost.push_back(s.last_weight);
    return cost;
  }

 private:
  int64_t budget_;
};

std::unique_ptr<Rule> make_tova(const Parameters& p) { return std::make_unique<Tova>(p); }

}  // namespace

const Oracle tova{"tova", make_tova};

}  // namespace kv::reference::policy
