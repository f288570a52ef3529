// Policies that cut a prompt down once and keep all later tokens. The prompt is the first step of more than one token on
// an empty sequence; it attends in full. If it is longer than `budget` rows, the policy then says which of its tokens
// stay. Their rows move to the front in the order of their tokens.
//
// Counted in the ledger: an i32 token id for each row that a prompt is cut down to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "variants/core/entry.h"
#include "variants/core/retention.h"

namespace kv {

// The `count` places of the largest values, in ascending order; of equal values the first.
std::vector<int64_t> largest(std::span<const double> values, int64_t count);
std::vector<int64_t> largest(std::span<const float> values, int64_t count);
inline std::vector<int64_t> largest(const std::vector<double>& values, int64_t count) {
  return largest(std::span<const double>(values), count);
}

class PromptCut : public Retention {
 public:
  int64_t admit(std::span<const float>) final { return count_++ - dropped_; }
  int64_t slots() const final { return count_ - dropped_; }
  int64_t token_at(int64_t slot) const final {
    return dropped_ > 0 && slot < prompt_ - dropped_ ? kept()[slot] : slot + dropped_;
  }
  int64_t slots_after(int64_t tokens) const final { return tokens - dropped_; }
  std::vector<int64_t> compact() final;
  int64_t earliest() const final { return prompt_; }
  void truncate(int64_t tokens) final { count_ = tokens; }
  void save(Writer& to) const final;
  bool load(Reader& from, int64_t tokens) final;

  // The closed forms: mean slots of a head, and bytes of its ids.
  static int64_t slots(int64_t budget, const SequenceLengths& lengths);
  static int64_t metadata_bytes(int64_t budget, int64_t max_tokens);

 protected:
  // `budget`: of the longest prompt; ids have room for as many rows.
  PromptCut(int64_t budget, const RetentionContext& context);
  PromptCut(const PromptCut& other);

  // Records the prompt if this is the first slice of a sequence. Returns its tokens if they are more than the budget; else
  // 0.
  int64_t find_prompt(int64_t remaining);
  // To be called once before compact(): the tokens of the prompt that stay, ascending.
  void keep(std::vector<int64_t> tokens) { keep_ = std::move(tokens); }
  // The rows that a prompt of so many tokens is cut down to: no more than the constructor's.
  virtual int64_t budget_for(int64_t /*prompt*/) const { return budget_; }
  // True if a prompt may have been cut down to so many rows.
  virtual bool may_keep(int64_t rows) const { return rows == budget_; }
  // Makes room for as many ids, in place of those for `budget`. Heads that share a budget free all their room before
  // any of them takes it anew.
  void free_ids() { ids_ = Block(); }
  void take_ids(int64_t rows);

  int64_t budget() const { return budget_; }
  int64_t prompt() const { return prompt_; }
  int64_t count() const { return count_; }

 private:
  int32_t* kept() const { return reinterpret_cast<int32_t*>(ids_.data()); }

  int64_t budget_;  // of this prompt, once it has come
  Memory* memory_;
  int64_t count_ = 0;
  int64_t prompt_ = 0;   // its tokens, if it is longer than the budget
  int64_t dropped_ = 0;  // tokens of the prompt that are gone
  Block ids_;            // i32 [rows]: the prompt's tokens that stayed, once some are gone
  std::vector<int64_t> keep_;
};

// The entry of such a policy, made of stage and context. `Settings(stage, max_tokens)` has its budget.
template <class Policy, class Settings>
RetentionEntry prompt_cut_entry(Entry about, RetentionTraits traits = {}) {
  traits.make = make_retention<Policy>;
  traits.slots = [](const Stage& stage, const SequenceLengths& lengths) {
    return PromptCut::slots(Settings(stage, lengths.max_tokens).budget, lengths);
  };
  traits.metadata_bytes = [](const Stage& stage, int64_t max_tokens) {
    return PromptCut::metadata_bytes(Settings(stage, max_tokens).budget, max_tokens);
  };
  traits.scores = traits.cuts_prompt = true;
  traits.irreversible = "a prompt that was cut stays cut";
  return {std::move(about), traits};
}

// Policies that score the rows of a prompt once it has attended: those of the largest scores stay, of equal ones the
// earliest.
template <class Policy>
class ScoredCut : public PromptCut {
 public:
  ScoredCut(const Stage& stage, const RetentionContext& context)
      : PromptCut(stage.rows("budget", context.max_tokens), context), stage_(stage) {}
  std::unique_ptr<Retention> clone() const final {
    return std::make_unique<Policy>(static_cast<const Policy&>(*this));
  }
  Slice next(int64_t remaining) final {
    const int64_t tokens = find_prompt(remaining);
    return {.tokens = remaining, .shown = tokens > 0 && count() == 0};
  }
  void show(const SliceRows& rows) final { keep(largest(score(rows), budget())); }

 protected:
  // [rows.n]
  virtual std::vector<double> score(const SliceRows& rows) const = 0;
  int64_t parameter(const char* name) const { return stage_.integer(name); }

 private:
  Stage stage_;
};

inline double squared_norm(const float* row, int width) {
  double sum = 0.0;
  for (int x = 0; x < width; ++x) sum += double{row[x]} * row[x];
  return sum;
}

// The settings of such a policy. Throws std::invalid_argument where sinks fill the budget.
struct CutSettings {
  int64_t budget;
  CutSettings(const Stage& stage, int64_t max_tokens);
};
Parameter cut_budget_parameter();
Parameter cut_sinks_parameter();

// Policies by which the last `window` tokens of the prompt vote, and stay: an earlier token's votes are the
// probabilities that their queries gave it, summed over them and over the head's group of query heads, then summed over
// `kernel` neighbours so that a find keeps its surroundings. (An average would order them alike.)
struct Voting {
  int64_t budget, window, kernel;
  // Throws std::invalid_argument if the numbers do not fit together.
  Voting(const Stage& stage, int64_t max_tokens);
};

// The parameters of Voting.
std::vector<Parameter> voting_parameters(std::string_view help_of_budget);

class VotedCut : public PromptCut {
 public:
  // A prompt that is too long comes in two slices, of which only the voters' is scored.
  Slice next(int64_t remaining) final;
  void observe(std::span<const float> weights) final;

 protected:
  VotedCut(const Stage& stage, const RetentionContext& context)
      : VotedCut(stage, context, Voting(stage, context.max_tokens).budget) {}
  VotedCut(const Stage& stage, const RetentionContext& context, int64_t most)
      : PromptCut(most, context), voting_(stage, context.max_tokens) {}

  // `votes` [prompt - window].
  virtual void decide(std::vector<float> votes) = 0;
  // Keeps the `rows` tokens of the most votes (of equal ones the earliest), and the window.
  void keep_most_voted(std::span<const float> votes, int64_t rows);
  // Rows that tokens are voted into.
  int64_t voted_rows() const { return budget() - voting_.window; }

 private:
  Voting voting_;
};

}  // namespace kv
