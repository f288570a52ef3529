// ada (arXiv:2407.11550): cuts a prompt like snapkv, but divides a layer's rows among its heads by their votes. The
// votes fill budget - window rows a head. Over all heads, the tokens with the most votes claim one row each. Every
// head gets a share `floor` of the mean; claims divide the rest, `step` rows at a time, largest remainders first.
#include <algorithm>
#include <cmath>

#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

class Ada : public Rule {
 public:
  explicit Ada(const Parameters& p)
      : budget_(parameter(p, "budget")),
        window_(parameter(p, "window")),
        kernel_(parameter(p, "kernel")),
        floor_(static_cast<double>(parameter(p, "floor")) / 100.0),
        step_(parameter(p, "step")) {}

  bool restarts_weights(int64_t token, int64_t prompt) const override { return token == prompt - window_; }

  std::optional<Cut> cut(const std::vector<Slot>& slots, const Prompt& prompt) const override {
    if (prompt.tokens <= budget_) return std::nullopt;
    Cut cut{std::vector<double>(slots.size(), kInfinite), budget_};
    const int64_t voted = prompt.tokens - window_;
    for (int64_t i = 0; i < voted; ++i) {
      double& sum = cut.score[static_cast<size_t>(i)] = 0.0;
      for (int64_t j = i - kernel_ / 2; j <= i + kernel_ / 2; ++j)
        if (j >= 0 && j < voted) sum += slots[static_cast<size_t>(j)].accumulated_weight;
    }
    return cut;
  }

  // f32 may order a near tie between heads otherwise, which moves a step from one head to another; a followed cache
  // then breaks the rule. That needs two votes of a layer equal to 6 digits, at the very threshold.
  void settle(std::vector<Cut>& cuts) const override {
    const int64_t mean = budget_ - window_;
    const std::vector<int64_t> claims = claims_of(cuts, mean * static_cast<int64_t>(cuts.size()));
    const auto most = static_cast<int64_t>(
        std::floor((static_cast<double>(mean) * (1.0 - floor_) + 1e-9) / static_cast<double>(step_)));
    const int64_t least = mean - most * step_;
    int64_t steps = most * static_cast<int64_t>(cuts.size());
    std::vector<double> due;  // steps
    for (size_t h = 0; h < cuts.size(); ++h) {
      due.push_back(static_cast<double>(most * claims[h]) / static_cast<double>(mean));
      const auto whole = static_cast<int64_t>(due[h] + 1e-9);
      cuts[h].rows = window_ + least + whole * step_;
      due[h] -= static_cast<double>(whole);
      steps -= whole;
    }
    while (steps > 0) {
      size_t next = cuts.size();
      for (size_t h = 0; h < cuts.size(); ++h) {
        const bool full = cuts[h].rows + step_ > static_cast<int64_t>(cuts[h].score.size());
        if (!full && (next == cuts.size() || due[h] > due[next] + 1e-9)) next = h;
      }
      cuts[next].rows += step_;
      due[next] -= 1.0;
      --steps;
    }
  }

 private:
  // Counts each head's share of the `rows` largest votes of all heads; equal votes rank the first head first.
  std::vector<int64_t> claims_of(const std::vector<Cut>& cuts, int64_t rows) const {
    struct Vote {
      double votes;
      size_t head;
    };
    std::vector<Vote> all;
    for (size_t h = 0; h < cuts.size(); ++h) {
      for (const double votes : cuts[h].score)
        if (!std::isinf(votes)) all.push_back({votes, h});
    }
    std::stable_sort(all.begin(), all.end(), [](const Vote& a, const Vote& b) { return a.votes > b.votes; });
    std::vector<int64_t> claims(cuts.size());
    for (int64_t i = 0; i < rows; ++i) ++claims[all[static_cast<size_t>(i)].head];
    return claims;
  }

  int64_t budget_, window_, kernel_;
  double floor_;
  int64_t step_;
};

std::unique_ptr<Rule> make_ada(const Parameters& p) { return std::make_unique<Ada>(p); }

}  // namespace

const Oracle ada{"ada", make_ada};

}  // namespace kv::reference::policy
