// A prompt's tokens that stay, and the votes that choose them.
#include "variants/retention/prompt_cut.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace kv {
namespace {

template <class T>
std::vector<int64_t> places_of_largest(std::span<const T> values, int64_t count) {
  std::vector<int64_t> places(values.size());
  std::iota(places.begin(), places.end(), int64_t{0});
  std::nth_element(places.begin(), places.begin() + count, places.end(), [&](int64_t a, int64_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  places.resize(static_cast<size_t>(count));
  std::sort(places.begin(), places.end());
  return places;
}

// The sum of each vote and its (kernel - 1) / 2 neighbours on both sides; beyond the ends there are none.
std::vector<float> pooled(std::span<const float> votes, int64_t kernel) {
  const int64_t n = static_cast<int64_t>(votes.size()), reach = kernel / 2;
  std::vector<float> sums(votes.size());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = std::max<int64_t>(0, i - reach); j <= std::min(n - 1, i + reach); ++j)
      sums[i] += votes[j];
  }
  return sums;
}

}  // namespace

std::vector<int64_t> largest(std::span<const double> values, int64_t count) {
  return places_of_largest(values, count);
}
std::vector<int64_t> largest(std::span<const float> values, int64_t count) {
  return places_of_largest(values, count);
}

int64_t PromptCut::slots(int64_t budget, const SequenceLengths& lengths) {
  return lengths.tokens - std::max<int64_t>(0, lengths.prompt - budget);
}

int64_t PromptCut::metadata_bytes(int64_t budget, int64_t max_tokens) {
  return std::min(budget, max_tokens) * static_cast<int64_t>(sizeof(int32_t));
}

PromptCut::PromptCut(int64_t budget, const RetentionContext& context)
    : budget_(budget),
      memory_(context.memory),
      ids_(*memory_, static_cast<size_t>(metadata_bytes(budget, context.max_tokens)), ByteKind::kMetadata) {}

PromptCut::PromptCut(const PromptCut& other)
    : Retention(other),
      budget_(other.budget_),
      memory_(other.memory_),
      count_(other.count_),
      prompt_(other.prompt_),
      dropped_(other.dropped_),
      ids_(*memory_, other.ids_.size(), ByteKind::kMetadata) {
  memory_->copy(ids_.data(), other.ids_.data(), ids_.size());
}

int64_t PromptCut::find_prompt(int64_t remaining) {
  if (count_ == 0) {
    budget_ = budget_for(remaining);
    prompt_ = remaining > budget_ ? remaining : 0;
  }
  return prompt_;
}

void PromptCut::take_ids(int64_t rows) {
  ids_ = Block(*memory_, static_cast<size_t>(rows) * sizeof(int32_t), ByteKind::kMetadata);
}

std::vector<int64_t> PromptCut::compact() {
  if (keep_.empty()) return {};  // amid a prompt
  std::copy(keep_.begin(), keep_.end(), kept());
  dropped_ = prompt_ - std::ssize(keep_);
  return std::exchange(keep_, {});
}

void PromptCut::save(Writer& to) const {
  for (const int64_t number : {count_, prompt_, dropped_}) to.put(number);
  if (dropped_ > 0) to.put(std::span<const int32_t>(kept(), static_cast<size_t>(prompt_ - dropped_)));
}

bool PromptCut::load(Reader& from, int64_t tokens) {
  for (int64_t* number : {&count_, &prompt_, &dropped_}) *number = from.get<int64_t>();
  if (count_ != tokens) return false;
  if (prompt_ == 0) return dropped_ == 0;
  budget_ = budget_for(prompt_);
  if (prompt_ <= budget_ || prompt_ > count_ || dropped_ < 0 || dropped_ >= prompt_ ||
      !may_keep(prompt_ - dropped_))
    return false;
  const auto rows = static_cast<size_t>(prompt_ - dropped_);
  if (prompt_ - dropped_ != budget_) take_ids(prompt_ - dropped_);
  if (dropped_ == 0) return true;
  const std::span kept_tokens(kept(), rows);
  from.get(kept_tokens);
  return kept_tokens.front() >= 0 && kept_tokens.back() < prompt_ &&
         std::adjacent_find(kept_tokens.begin(), kept_tokens.end(), std::greater_equal<>()) ==
             kept_tokens.end();
}

CutSettings::CutSettings(const Stage& stage, int64_t max_tokens) : budget(stage.rows("budget", max_tokens)) {
  const int64_t sinks = stage.values.contains("sinks") ? stage.integer("sinks") : 0;
  if (budget <= sinks)
    throw std::invalid_argument(stage.name + ": budget (" + std::to_string(budget) +
                                " rows) must be larger than sinks (" + std::to_string(sinks) + ")");
}

Parameter cut_budget_parameter() {
  return Parameter::rows("budget", "256", {48}, "rows that the prompt is cut down to");
}
Parameter cut_sinks_parameter() {
  return Parameter::integer("sinks", "4", 0, 1024, {}, "first tokens, which stay; `budget` counts them");
}

Voting::Voting(const Stage& stage, int64_t max_tokens)
    : budget(stage.rows("budget", max_tokens)),
      window(stage.integer("window")),
      kernel(stage.integer("kernel")) {
  if (budget <= window) {
    throw std::invalid_argument(stage.name + ": budget (" + std::to_string(budget) +
                                " rows) must be larger than window (" + std::to_string(window) + ")");
  }
  if (kernel % 2 == 0)
    throw std::invalid_argument(stage.name + ": kernel must be odd, not " + std::to_string(kernel));
}

std::vector<Parameter> voting_parameters(std::string_view help_of_budget) {
  return {Parameter::rows("budget", "256", {48}, help_of_budget),
          Parameter::integer("window", "32", 1, 1024, {16}, "last tokens of the prompt: they vote, and stay"),
          Parameter::integer("kernel", "5", 1, 63, {7}, "neighbours that votes are averaged over; odd")};
}

Slice VotedCut::next(int64_t remaining) {
  const int64_t tokens = find_prompt(remaining);
  if (count() == 0 && tokens > 0) return {.tokens = tokens - voting_.window, .scored = false};
  return {.tokens = remaining, .scored = tokens > 0 && count() == tokens - voting_.window};
}

void VotedCut::observe(std::span<const float> weights) {
  decide(pooled(weights.first(static_cast<size_t>(prompt() - voting_.window)), voting_.kernel));
}

void VotedCut::keep_most_voted(std::span<const float> votes, int64_t rows) {
  std::vector<int64_t> tokens = largest(votes, rows);
  for (int64_t i = prompt() - voting_.window; i < prompt(); ++i) tokens.push_back(i);
  keep(std::move(tokens));
}

}  // namespace kv
