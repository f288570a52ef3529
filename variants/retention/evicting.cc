#include "variants/retention/evicting.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/cuda/gpu.h"

namespace kv {

int64_t Evicting::metadata_bytes(int64_t budget, int64_t max_tokens, Scores scores) {
  const int64_t slot_bytes = scores == Scores::kNone ? sizeof(int32_t) : sizeof(int32_t) + sizeof(float);
  return std::min(budget, max_tokens) * slot_bytes;
}

Evicting::Evicting(int64_t budget, const RetentionContext& context, Scores scores)
    : memory_(context.memory),
      gpu_(scores == Scores::kOfAttention ? memory_->gpu() : nullptr),
      budget_(std::min(budget, context.max_tokens)),
      scored_(scores != Scores::kNone),
      block_(new_block(static_cast<size_t>(metadata_bytes(budget, context.max_tokens, scores)))) {
  if (!gpu_) return;
  // Slots fill in order, so on the GPU they can have their tokens from the start.
  std::vector<int32_t> tokens(static_cast<size_t>(budget_));
  std::iota(tokens.begin(), tokens.end(), 0);
  write(token_data(), std::span<const int32_t>(tokens));
  write(score_data(), std::span<const float>(std::vector<float>(tokens.size(), 0.0f)));
}

Evicting::Evicting(const Evicting& other)
    : Retention(other),
      memory_(other.memory_),
      gpu_(other.gpu_),
      budget_(other.budget_),
      count_(other.count_),
      scored_(other.scored_),
      block_(new_block(other.block_.size())) {
  memory_->copy(block_.data(), other.block_.data(), block_.size());
}

Block Evicting::new_block(size_t bytes) const {
  return gpu_ ? Block::of_rows(*memory_, bytes, ByteKind::kMetadata)
              : Block(*memory_, bytes, ByteKind::kMetadata);
}

int64_t Evicting::admit(std::span<const float> key) {
  if (gpu_) return count_ < budget_ ? count_++ : (++count_, kChosenOnGpu);
  const int64_t slot = count_ < budget_ ? count_ : victim();
  token_data()[slot] = static_cast<int32_t>(count_++);
  if (scored_) scores()[slot] = first_score(key);
  return slot;
}

Slice Evicting::next(int64_t remaining) {
  return {.tokens = std::clamp<int64_t>(budget_ - count_, 1, remaining), .scored = false};
}

template <class T>
std::vector<T> Evicting::read(const T* from) const {
  std::vector<T> numbers(static_cast<size_t>(slots()));
  const size_t bytes = numbers.size() * sizeof(T);
  if (numbers.empty()) return numbers;
  gpu_ ? gpu_->copy(numbers.data(), from, bytes)
       : static_cast<void>(std::memcpy(numbers.data(), from, bytes));
  return numbers;
}

template <class T>
void Evicting::write(T* to, std::span<const T> numbers) const {
  if (numbers.empty()) return;
  gpu_ ? gpu_->copy(to, numbers.data(), numbers.size_bytes())
       : static_cast<void>(std::memcpy(to, numbers.data(), numbers.size_bytes()));
}

std::vector<int64_t> Evicting::tokens_by_slot() const {
  const std::vector<int32_t> tokens = read(token_data());
  return {tokens.begin(), tokens.end()};
}

void Evicting::save(Writer& to) const {
  to.put(count_);
  to.put(std::span<const int32_t>(read(token_data())));
  if (scored_) to.put(std::span<const float>(read(score_data())));
}

void Evicting::load(Reader& from) {
  count_ = from.get<int64_t>();
  std::vector<int32_t> tokens(static_cast<size_t>(slots()));
  from.get(std::span(tokens));
  write(token_data(), std::span<const int32_t>(tokens));
  if (!scored_) return;
  std::vector<float> scores(tokens.size());
  from.get(std::span(scores));
  write(score_data(), std::span<const float>(scores));
}

std::optional<GpuState> Evicting::state_on_gpu(int64_t recent, bool newest_query) const {
  if (!gpu_) return std::nullopt;
  return GpuState{token_data(), score_data(), static_cast<int32_t>(budget_), static_cast<int32_t>(recent),
                  newest_query};
}

std::span<const int32_t> Evicting::tokens() const { return {token_data(), static_cast<size_t>(slots())}; }
std::span<float> Evicting::scores() { return {score_data(), static_cast<size_t>(slots())}; }
std::span<const float> Evicting::scores() const { return {score_data(), static_cast<size_t>(slots())}; }

}  // namespace kv
