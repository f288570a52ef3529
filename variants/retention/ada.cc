// ada: heads compete for their layer's budget (Ada-KV, Feng et al. 2024, arXiv:2407.11550). A prompt is cut down once by
// the votes of its last queries, like snapkv's (variants/retention/prompt_cut.h), to `budget` rows a head on average.
//
// Each head has its window. The layer has B = kv_heads (budget - window) other rows. The B tokens of the most votes, of all
// heads together, take one row each: B_i* of head i. A share `floor` of the mean is every head's own; the rest is divided in
// proportion to B_i*, `step` rows at a time, by largest remainders (of equal ones the first head's). So head i has close to
// floor B / kv_heads + (1 - floor) B_i* rows, as in the authors' code, and the layer has B.
//
// Steps keep the closed form of bytes exact: if memory is taken by blocks of `step` rows, or of a divisor, heads of any
// lengths hold as many blocks as heads of the mean. positions=cache is missing, because a query would have another position
// in every head. The authors' code lets every query head vote alone, and takes the largest of neighbouring votes, not
// their mean.
#include <algorithm>
#include <numeric>

#include "variants/list.h"
#include "variants/retention/prompt_cut.h"

namespace kv::retention {
namespace {

int64_t traded_rows(const Stage& stage) { return stage.integer("step"); }

class Ada : public VotedCut {
 public:
  Ada(const Stage& stage, const RetentionContext& context)
      : VotedCut(stage, context), step_(traded_rows(stage)), floor_hundredths_(stage.hundredths("floor")) {}
  std::unique_ptr<Retention> clone() const override { return std::make_unique<Ada>(*this); }

  static void settle(std::span<const std::unique_ptr<Retention>> heads) {
    std::vector<Ada*> all;
    for (const auto& head : heads) all.push_back(static_cast<Ada*>(head.get()));
    const std::vector<int64_t> rows = all.front()->rows_of(all);
    for (Ada* head : all) head->free_ids();
    for (size_t i = 0; i < all.size(); ++i) {
      all[i]->take_ids(rows[i] + all[i]->budget() - all[i]->voted_rows());
      all[i]->keep_most_voted(all[i]->votes_, rows[i]);
      all[i]->votes_ = {};
    }
  }

 private:
  void decide(std::vector<float> votes) override { votes_ = std::move(votes); }
  bool may_keep(int64_t rows) const override {
    return rows >= budget() - most_steps() * step_ && (rows - budget()) % step_ == 0;
  }

  // Steps that a head can give away.
  int64_t most_steps() const { return voted_rows() * (100 - floor_hundredths_) / 100 / step_; }

  // By head, the number of its tokens among the layer's tokens of the most votes.
  static std::vector<int64_t> winners(const std::vector<Ada*>& heads, int64_t rows) {
    std::vector<float> votes;
    for (const Ada* head : heads) votes.insert(votes.end(), head->votes_.begin(), head->votes_.end());
    std::vector<int64_t> won(heads.size());
    for (const int64_t at : largest(std::span<const float>(votes), rows))
      ++won[static_cast<size_t>(at) / heads.front()->votes_.size()];
    return won;
  }

  // The rows of each head besides its window.
  std::vector<int64_t> rows_of(const std::vector<Ada*>& heads) const {
    const int64_t mean = voted_rows(), count = std::ssize(heads), steps = most_steps();
    const std::vector<int64_t> won = winners(heads, count * mean);
    const int64_t tokens = std::ssize(votes_);
    std::vector<int64_t> rows, order(heads.size());
    int64_t left = count * steps;
    for (const int64_t own : won) {
      rows.push_back(mean - steps * step_ + steps * own / mean * step_);
      left -= steps * own / mean;
    }
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return steps * won[static_cast<size_t>(a)] % mean > steps * won[static_cast<size_t>(b)] % mean;
    });
    for (size_t i = 0; left > 0; i = (i + 1) % order.size()) {
      int64_t& its = rows[static_cast<size_t>(order[i])];
      if (its + step_ > tokens) continue;  // it has no more
      its += step_;
      --left;
    }
    return rows;
  }

  int64_t step_, floor_hundredths_;
  std::vector<float> votes_;  // the prompt that is being cut
};

std::vector<Parameter> ada_parameters() {
  std::vector<Parameter> parameters = voting_parameters("rows of a head on average, the window included");
  parameters.push_back(
      Parameter::decimal("floor", "0.2", 0, 100, {}, "share of its mean that every head keeps"));
  parameters.push_back(Parameter::integer("step", "16", 1, 4096, {}, "rows that heads trade at a time"));
  return parameters;
}

}  // namespace

const RetentionEntry ada = prompt_cut_entry<Ada, Voting>(
    {.name = "ada",
     .help = "cuts a long prompt as snapkv does; the heads of a layer compete for its rows",
     .source = "Ada-KV, Feng et al. 2024 (arXiv:2407.11550); its code lets each query head vote, takes the "
               "largest of neighbouring votes, and has no step",
     .parameters = ada_parameters()},
    {.ragged = true, .traded_rows = traded_rows, .settle = Ada::settle});

}  // namespace kv::retention
