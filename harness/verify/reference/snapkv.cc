// snapkv (arXiv:2404.14469): cuts a prompt once, to its last `window` tokens and the other tokens that they attended
// to most. Votes are summed over the `kernel` tokens around each. All later tokens are kept.
#include <algorithm>
#include <cmath>

#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

class SnapKv : public Rule {
 public:
  explicit SnapKv(const Parameters& p)
      : budget_(parameter(p, "budget")), window_(parameter(p, "window")), kernel_(parameter(p, "kernel")) {}

  bool restarts_weights(int64_t token, int64_t prompt) const override { return token == prompt - window_; }

  std::optional<Cut> cut(const std::vector<Slot>& slots, const Prompt& prompt) const override {
    const int64_t rows = budget(prompt.tokens);
    if (prompt.tokens <= rows) return std::nullopt;
    const int64_t voted = prompt.tokens - window_, reach = (kernel_ - 1) / 2;
    Cut cut{std::vector<double>(slots.size(), kInfinite), rows};
    for (int64_t i = 0; i < voted; ++i) {
      double votes = 0.0;
      for (int64_t j = std::max<int64_t>(0, i - reach); j <= std::min(i + reach, voted - 1); ++j)
        votes += slots[static_cast<size_t>(j)].accumulated_weight;
      cut.score[static_cast<size_t>(i)] = votes;
    }
    return cut;
  }

 protected:
  // Rows that a prompt keeps.
  virtual int64_t budget(int64_t /*prompt*/) const { return budget_; }

  int64_t budget_, window_, kernel_;
};

// pyramid (arXiv:2406.02069): the budgets of layers fall on a line around their mean. Its steepest slope gives the last layer
// 1 / beta of the mean beside the window. The first has no more than the prompt, and the line is flatter then.
class Pyramid : public SnapKv {
 public:
  explicit Pyramid(const Parameters& p)
      : SnapKv(p),
        layer_(parameter(p, "layer")),
        layers_(parameter(p, "layers")),
        beta_hundredths_(parameter(p, "beta")) {}

 private:
  int64_t budget(int64_t prompt) const override {
    if (layers_ == 1) return budget_;
    const auto mean = static_cast<double>(budget_ - window_),
               beta = static_cast<double>(beta_hundredths_) / 100;
    const double above =
        std::max(0.0, std::min(mean - mean / beta,
                               static_cast<double>(prompt - budget_)));  // the first layer's, to the mean
    double sum = 0.0, before = 0.0;
    for (int64_t i = 0; i <= layer_; ++i) {
      before = sum;
      sum += mean + above * (1.0 - 2.0 * static_cast<double>(i) / static_cast<double>(layers_ - 1));
    }
    return window_ + std::llround(sum) - std::llround(before);
  }

  int64_t layer_, layers_, beta_hundredths_;
};

// ada (arXiv:2407.11550): cuts a prompt like snapkv, but divides a layer's rows among its heads by their votes. The
// votes fill budget - window rows a head. Over all heads, the tokens with the most votes claim one row each. Every
// head gets a share `floor` of the mean; claims divide the rest, `step` rows at a time, largest remainders first.
class Ada : public SnapKv {
 public:
  explicit Ada(const Parameters& p)
      : SnapKv(p), floor_(static_cast<double>(parameter(p, "floor")) / 100.0), step_(parameter(p, "step")) {}

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

  double floor_;
  int64_t step_;
};

}  // namespace

const Oracle snapkv{"snapkv", make_rule<SnapKv>};
const Oracle pyramid{"pyramid", make_rule<Pyramid>};
const Oracle ada{"ada", make_rule<Ada>};

}  // namespace kv::reference::policy
