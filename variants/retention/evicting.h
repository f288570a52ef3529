// Policies that keep a fixed number of rows: slots fill in order; from then on each token takes the slot of the victim,
// before its query attends. So a query always sees its own token, and at most `budget` rows are held. (Papers that evict
// after the query speak of a cache one row smaller.)
//
// The ledger counts, a slot: an i32 token id, and an f32 score where the policy has one. A table of scores that come from
// attention may choose the victim itself, where attention is computed (variants/core/slot_table.h). The host then knows
// the number of tokens, and reads their ids only for checks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "variants/core/entry.h"
#include "variants/core/retention.h"
#include "variants/core/slot_table.h"
#include "variants/retention/positions.h"

namespace kv {

class Evicting : public Retention {
 public:
  int64_t admit(std::span<const float> key) final;
  int64_t slots() const final { return slots_after(count_); }
  int64_t token_at(int64_t slot) const final {
    return table_.chooses() ? tokens_by_slot()[static_cast<size_t>(slot)]
                            : tokens()[static_cast<size_t>(slot)];
  }
  std::vector<int64_t> tokens_by_slot() const final;
  int64_t slots_after(int64_t tokens) const final { return tokens < budget_ ? tokens : budget_; }
  Slice next(int64_t remaining) override;
  const SlotTable* choosing_table() const final { return table_.chooses() ? &table_ : nullptr; }
  int64_t earliest() const override { return count_ > budget_ ? count_ : 0; }
  void truncate(int64_t tokens) override { count_ = tokens; }
  void save(Writer& to) const override;
  bool load(Reader& from, int64_t tokens) override;

  // The rows that a stage keeps. A policy with other parameters hides it.
  static int64_t budget_of(const Stage& stage, int64_t max_tokens) {
    return stage.rows("budget", max_tokens);
  }

 protected:
  // `rule`: how victim() chooses, for a table that chooses in its place.
  Evicting(int64_t budget, const RetentionContext& context, SlotScores scores, const EvictionRule& rule);
  Evicting(const Evicting& other);

  // The slot to overwrite; asked when every slot is in use and the table does not choose.
  virtual int64_t victim() const = 0;
  // The score that a token starts with.
  virtual float first_score(std::span<const float> /*key*/) const { return 0.0f; }

  // Resets the scores of the slots in use to 0.
  void clear_scores() { table_.write_scores(std::vector<float>(static_cast<size_t>(slots()), 0.0f)); }

  int64_t budget() const { return budget_; }
  // Tokens admitted, which is the number of the next one.
  int64_t count() const { return count_; }
  // The table, where it does not choose.
  std::span<const int32_t> tokens() const { return {table_.tokens(), static_cast<size_t>(slots())}; }
  std::span<const float> scores() const { return {table_.scores(), static_cast<size_t>(slots())}; }
  std::span<float> scores() { return {table_.scores(), static_cast<size_t>(slots())}; }

 private:
  int64_t budget_;
  int64_t count_ = 0;
  bool scored_;
  SlotTable table_;  // `budget` slots
};

inline Parameter budget_parameter() {
  return Parameter::rows("budget", "256", {32}, "rows kept, the query's own included");
}

// A policy is victim() and, where keys or attention decide, its scores; all else follows from the budget.
template <class Policy, SlotScores kScores>
class EvictingPolicy : public Evicting {
 public:
  EvictingPolicy(const Stage& stage, const RetentionContext& context, const EvictionRule& rule = {})
      : Evicting(Policy::budget_of(stage, context.max_tokens), context, kScores, rule) {}
  std::unique_ptr<Retention> clone() const final {
    return std::make_unique<Policy>(static_cast<const Policy&>(*this));
  }

  // `about` without the parameter `positions`, which every such policy has.
  static RetentionEntry entry(Entry about, RetentionTraits traits = {}) {
    about.parameters.push_back(positions_parameter());
    traits.make = make_retention<Policy>;
    traits.slots = [](const Stage& stage, const SequenceLengths& lengths) {
      return std::min(lengths.tokens, Policy::budget_of(stage, lengths.max_tokens));
    };
    traits.metadata_bytes = [](const Stage& stage, int64_t max_tokens) {
      return SlotTable::bytes(std::min(Policy::budget_of(stage, max_tokens), max_tokens), kScores);
    };
    traits.scores = kScores == SlotScores::kOfAttention;
    traits.rotates_at_read = rotates_by_cache_position;
    return {std::move(about), traits};
  }
};

}  // namespace kv
