// ring (arXiv:2004.05150, arXiv:2309.17453): keeps the first `sinks` tokens and the newest `window`.
#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

class Ring : public Rule {
 public:
  explicit Ring(const Parameters& p) : sinks_(parameter(p, "sinks")), window_(parameter(p, "window")) {}
  int64_t capacity() const override { return sinks_ + window_; }
  std::vector<double> costs(const std::vector<Slot>& slots, const Arrival&) const override {
    std::vector<double> cost;
    for (const Slot& s : slots) cost.push_back(s.token < sinks_ ? kInfinite : static_cast<double>(s.token));
    return cost;
  }

 private:
  int64_t sinks_, window_;
};

std::unique_ptr<Rule> make_ring(const Parameters& p) { return std::make_unique<Ring>(p); }

}  // namespace

const Oracle ring{"ring", make_ring};

}  // namespace kv::reference::policy
