// duo (arXiv:2410.10819): a retrieval head keeps every token; any other keeps the first `sinks` and the newest
// `recent`.
#include <string>

#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

class Duo : public Rule {
 public:
  explicit Duo(const Parameters& p)
      : retrieves_(parameter(p, "retrieval" + std::to_string(parameter(p, "kv_head"))) != 0),
        recent_(parameter(p, "recent")),
        sinks_(parameter(p, "sinks")) {}
  int64_t capacity() const override { return retrieves_ ? kUnlimited : sinks_ + recent_; }
  std::vector<double> costs(const std::vector<Slot>& slots, const Arrival&) const override {
    std::vector<double> cost;
    for (const Slot& s : slots) cost.push_back(s.token < sinks_ ? kInfinite : static_cast<double>(s.token));
    return cost;
  }

 private:
  bool retrieves_;
  int64_t recent_, sinks_;
};

std::unique_ptr<Rule> make_duo(const Parameters& p) { return std::make_unique<Duo>(p); }

}  // namespace

const Oracle duo{"duo", make_duo};

}  // namespace kv::reference::policy
