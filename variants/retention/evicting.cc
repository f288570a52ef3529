#include "variants/retention/evicting.h"

#include <algorithm>

namespace kv {

int64_t Evicting::metadata_bytes(int64_t budget, int64_t max_tokens, Scores scores) {
  const int64_t slot_bytes = scores == Scores::kOne ? sizeof(int32_t) + sizeof(float) : sizeof(int32_t);
  return std::min(budget, max_tokens) * slot_bytes;
}

Evicting::Evicting(int64_t budget, const RetentionContext& context, Scores scores)
    : memory_(context.memory),
      budget_(std::min(budget, context.max_tokens)),
      scored_(scores == Scores::kOne),
      block_(*memory_, static_cast<size_t>(metadata_bytes(budget, context.max_tokens, scores)),
             ByteKind::kMetadata) {}

Evicting::Evicting(const Evicting& other)
    : Retention(other),
      memory_(other.memory_),
      budget_(other.budget_),
      count_(other.count_),
      scored_(other.scored_),
      block_(*memory_, other.block_.size(), ByteKind::kMetadata) {
  memory_->copy(block_.data(), other.block_.data(), block_.size());
}

int64_t Evicting::admit(std::span<const float> key) {
  const int64_t slot = count_ < budget_ ? count_ : victim();
  reinterpret_cast<int32_t*>(block_.data())[slot] = static_cast<int32_t>(count_++);
  if (scored_) scores()[slot] = first_score(key);
  return slot;
}

Slice Evicting::next(int64_t remaining) {
  return {.tokens = std::clamp<int64_t>(budget_ - count_, 1, remaining), .scored = false};
}

void Evicting::save(Writer& to) const {
  to.put(count_);
  to.put(tokens());
  if (scored_) to.put(scores());
}

void Evicting::load(Reader& from) {
  count_ = from.get<int64_t>();
  from.get(std::span(reinterpret_cast<int32_t*>(block_.data()), static_cast<size_t>(slots())));
  if (scored_) from.get(scores());
}

std::span<const int32_t> Evicting::tokens() const {
  return {reinterpret_cast<const int32_t*>(block_.data()), static_cast<size_t>(slots())};
}

std::span<float> Evicting::scores() {
  float* first = reinterpret_cast<float*>(block_.data()) + budget_;
  return {first, static_cast<size_t>(slots())};
}

std::span<const float> Evicting::scores() const { return const_cast<Evicting*>(this)->scores(); }

}  // namespace kv
