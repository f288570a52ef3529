// Slots fill in order, then one by one they are overwritten.
#include "variants/retention/evicting.h"

#include <algorithm>

namespace kv {

Evicting::Evicting(int64_t budget, const RetentionContext& context, SlotScores scores,
                   const EvictionRule& rule)
    : budget_(std::min(budget, context.max_tokens)),
      scored_(scores != SlotScores::kNone),
      table_(*context.memory, budget_, scores, rule) {}

Evicting::Evicting(const Evicting& other)
    : Retention(other),
      budget_(other.budget_),
      count_(other.count_),
      scored_(other.scored_),
      table_(other.table_) {}

int64_t Evicting::admit(std::span<const float> key) {
  if (table_.chooses()) return count_ < budget_ ? count_++ : (++count_, kChosenByTable);
  const int64_t slot = count_ < budget_ ? count_ : victim();
  table_.tokens()[slot] = static_cast<int32_t>(count_++);
  if (scored_) table_.scores()[slot] = first_score(key);
  return slot;
}

Slice Evicting::next(int64_t remaining) {
  return {.tokens = std::clamp<int64_t>(budget_ - count_, 1, remaining), .scored = false};
}

std::vector<int64_t> Evicting::tokens_by_slot() const {
  const std::vector<int32_t> ids = table_.read_tokens(slots());
  return {ids.begin(), ids.end()};
}

void Evicting::save(Writer& to) const {
  to.put(count_);
  to.put(std::span<const int32_t>(table_.read_tokens(slots())));
  if (scored_) to.put(std::span<const float>(table_.read_scores(slots())));
}

bool Evicting::load(Reader& from, int64_t tokens) {
  count_ = from.get<int64_t>();
  if (count_ != tokens) return false;
  std::vector<int32_t> ids(static_cast<size_t>(slots()));
  from.get(std::span(ids));
  table_.write_tokens(ids);
  if (scored_) {
    std::vector<float> scores(ids.size());
    from.get(std::span(scores));
    table_.write_scores(scores);
  }
  // A token was admitted, and has one slot.
  std::sort(ids.begin(), ids.end());
  return ids.empty() ||
         (ids.front() >= 0 && ids.back() < count_ && std::adjacent_find(ids.begin(), ids.end()) == ids.end());
}

}  // namespace kv
