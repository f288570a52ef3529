// snapkv (arXiv:2404.14469): cuts a prompt once, to its last `window` tokens and the other tokens that they attended
// to most. Votes are summed over the `kernel` tokens around each. All later tokens are kept.
#include <algorithm>

#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

class SnapKv : public Rule {
 public:
  explicit SnapKv(const Parameters& p)
      : budget_(parameter(p, "budget")), window_(parameter(p, "window")), kernel_(parameter(p, "kernel")) {}

  bool restarts_weights(int64_t token, int64_t prompt) const override { return token == prompt - window_; }

  std::optional<Cut> cut(const std::vector<Slot>& slots, const Prompt& prompt) const override {
    if (prompt.tokens <= budget_) return std::nullopt;
    const int64_t voted = prompt.tokens - window_, reach = (kernel_ - 1) / 2;
    Cut cut{std::vector<double>(slots.size(), kInfinite), budget_};
    for (int64_t i = 0; i < voted; ++i) {
      double votes = 0.0;
      for (int64_t j = std::max<int64_t>(0, i - reach); j <= std::min(i + reach, voted - 1); ++j)
        votes += slots[static_cast<size_t>(j)].accumulated_weight;
      cut.score[static_cast<size_t>(i)] = votes;
    }
    return cut;
  }

 private:
  int64_t budget_, window_, kernel_;
};

std::unique_ptr<Rule> make_snapkv(const Parameters& p) { return std::make_unique<SnapKv>(p); }

}  // namespace

const Oracle snapkv{"snapkv", make_snapkv};
// Its layers are snapkv's with budgets of their own; a single layer has the mean budget.
const Oracle pyramid{"pyramid", make_snapkv};

}  // namespace kv::reference::policy
