// What policies share that keep a fixed number of rows: slots fill in order; from then on each token takes
// the slot of the one that the policy picks as victim, before its query attends. So a query always sees its
// own token, and no more than `budget` rows are ever held. (Papers that evict after the query speak of a
// cache one row smaller.)
//
// The ledger counts, a slot: an i32 token id, and an f32 score where the policy has one. The score is what
// the policy says it is. A table of scores that come from attention may be a device's, which then chooses the
// victim (variants/core/slot_table.h). The host then knows how many tokens there are, and asks which only
// for those who want to see them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "variants/core/retention.h"
#include "variants/core/slot_table.h"

namespace kv {

class Evicting : public Retention {
 public:
  int64_t admit(std::span<const float> key) final;
  int64_t slots() const final { return slots_after(count_); }
  int64_t token_at(int64_t slot) const final {
    return table_->device() ? tokens_by_slot()[static_cast<size_t>(slot)]
                            : tokens()[static_cast<size_t>(slot)];
  }
  std::vector<int64_t> tokens_by_slot() const final;
  int64_t slots_after(int64_t tokens) const final { return tokens < budget_ ? tokens : budget_; }
  Slice next(int64_t remaining) override;
  const DeviceScores* device_scores() const final { return table_->device(); }
  int64_t earliest() const override { return count_ > budget_ ? count_ : 0; }
  void truncate(int64_t tokens) override { count_ = tokens; }
  void save(Writer& to) const final;
  bool load(Reader& from, int64_t tokens) final;

  // Bytes that a state of `budget` slots, of which at most max_tokens are ever used, takes.
  static int64_t metadata_bytes(int64_t budget, int64_t max_tokens, SlotScores scores);

 protected:
  // `rule`: how victim() chooses, for a device that does it in its place.
  Evicting(int64_t budget, const RetentionContext& context, SlotScores scores, const EvictionRule& rule = {});
  Evicting(const Evicting& other);

  // The slot to overwrite; asked when every slot is in use and the table is the host's.
  virtual int64_t victim() const = 0;
  // The score that a token starts with.
  virtual float first_score(std::span<const float> /*key*/) const { return 0.0f; }

  // Gives the slots in use the score that a token starts with where it is 0.
  void clear_scores() { table_->write_scores(std::vector<float>(static_cast<size_t>(slots()), 0.0f)); }

  int64_t budget() const { return budget_; }
  // Tokens admitted, which is the number of the next one.
  int64_t count() const { return count_; }
  // The table, where it is the host's.
  std::span<const int32_t> tokens() const { return {table_->tokens(), static_cast<size_t>(slots())}; }
  std::span<const float> scores() const { return {table_->scores(), static_cast<size_t>(slots())}; }
  std::span<float> scores() { return {table_->scores(), static_cast<size_t>(slots())}; }

 private:
  int64_t budget_;
  int64_t count_ = 0;
  bool scored_;
  std::unique_ptr<SlotTable> table_;  // of `budget` slots
};

}  // namespace kv
