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

template <class T>
std::unique_ptr<Rule> make_rule(const Parameters& p) {
  return std::make_unique<T>(p);
}

}  // namespace

const Oracle snapkv{"snapkv", make_rule<SnapKv>};
const Oracle pyramid{"pyramid", make_rule<Pyramid>};

}  // namespace kv::reference::policy
