// ring (arXiv:2004.05150, arXiv:2309.17453): keeps the first `sinks` tokens and the newest `window`. Of rows in groups at
// most so many: the newest groups that fit into the window beside as many rows as can wait.
#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

class Ring : public Rule {
 public:
  explicit Ring(const Parameters& p) : sinks_(parameter(p, "sinks")), window_(parameter(p, "window")) {}
  int64_t capacity() const override { return sinks_ + window_; }
  std::vector<double> costs(const std::vector<Slot>& slots, const Arrival&) const override {
    std::vector<double> all;
    for (const Slot& slot : slots)
      all.push_back(slot.token < sinks_ ? kInfinite : static_cast<double>(slot.token));
    return all;
  }
  std::pair<int64_t, int64_t> gone(int64_t tokens, const Groups& groups) const override {
    int64_t begin = groups.stored_end(tokens), most = groups.waiting + groups.rows - 1;
    for (; most + groups.rows <= window_; most += groups.rows) begin -= groups.rows;
    return {sinks_, std::max(sinks_, begin)};
  }

 private:
  int64_t sinks_, window_;
};

}  // namespace

const Oracle ring{"ring", make_rule<Ring>};

}  // namespace kv::reference::policy
