// h2o (arXiv:2306.14048): keeps the `heavy` tokens with the most attention weight from all queries so far, and the
// newest `recent`.
#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

class H2o : public Rule {
 public:
  explicit H2o(const Parameters& p) : heavy_(parameter(p, "heavy")), recent_(parameter(p, "recent")) {}
  int64_t capacity() const override { return heavy_ + recent_; }
  std::vector<double> costs(const std::vector<Slot>& slots, const Arrival& arrival) const override {
    std::vector<double> cost;
    for (const Slot& s : slots)
      cost.push_back(s.token > arrival.token - recent_ ? kInfinite : s.accumulated_weight);
    return cost;
  }

 private:
  int64_t heavy_, recent_;
};

std::unique_ptr<Rule> make_h2o(const Parameters& p) { return std::make_unique<H2o>(p); }

}  // namespace

const Oracle h2o{"h2o", make_h2o};

}  // namespace kv::reference::policy
