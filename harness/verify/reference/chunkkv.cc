// chunkkv (arXiv:2502.00299): cuts a prompt once to whole chunks of `chunk` tokens, as many as the budget's share of it, rounded
// down: those of the last `window` tokens, and the others with the largest mean of snapkv's votes over all heads of the layer.
#include <algorithm>
#include <numeric>

#include "harness/verify/reference/list.h"

namespace kv::reference::policy {
namespace {

class ChunkKv : public Rule {
 public:
  explicit ChunkKv(const Parameters& p)
      : votes_(policy::snapkv.make(p)), budget_(parameter(p, "budget")), chunk_(parameter(p, "chunk")) {}

  bool restarts_weights(int64_t token, int64_t prompt) const override {
    return votes_->restarts_weights(token, prompt);
  }
  std::optional<Cut> cut(const std::vector<Slot>& slots, const Prompt& prompt) const override {
    return votes_->cut(slots, prompt);
  }
  void settle(std::vector<Cut>& cuts) const override {
    const int64_t tokens = std::ssize(cuts.front().score);
    std::vector<double> sum(static_cast<size_t>(tokens));
    for (int64_t first = 0; first < tokens; first += chunk_) {
      const int64_t end = std::min(tokens, first + chunk_);
      double mean = 0.0;
      for (const Cut& cut : cuts)
        mean += std::accumulate(cut.score.begin() + first, cut.score.begin() + end, 0.0) /
                static_cast<double>(end - first);
      std::fill(sum.begin() + first, sum.begin() + end, mean);
    }
    const int64_t chunks = (tokens + chunk_ - 1) / chunk_, kept = chunks * budget_ / tokens;
    for (Cut& cut : cuts) cut = {sum, kept * chunk_ - (chunks * chunk_ - tokens)};
  }

 private:
  std::unique_ptr<Rule> votes_;
  int64_t budget_, chunk_;
};

std::unique_ptr<Rule> make_chunkkv(const Parameters& p) { return std::make_unique<ChunkKv>(p); }

}  // namespace

const Oracle chunkkv{"chunkkv", make_chunkkv};

}  // namespace kv::reference::policy
