// knorm (arXiv:2406.11430): evicts the token whose key has the largest norm.
#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

class KNorm : public Rule {
 public:
  explicit KNorm(const Parameters& p) : budget_(parameter(p, "budget")) {}
  int64_t capacity() const override { return budget_; }
  std::vector<double> costs(const std::vector<Slot>& slots, const Arrival&) const override {
    std::vector<double> cost;
    for (const Slot& s : slots) cost.push_back(-s.squared_norm);
    return cost;
  }

 private:
  int64_t budget_;
};

std::unique_ptr<Rule> make_knorm(const Parameters& p) { return std::make_unique<KNorm>(p); }

}  // namespace

const Oracle knorm{"knorm", make_knorm};

}  // namespace kv::reference::policy
